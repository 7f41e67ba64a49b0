// safetensors files (huggingface/safetensors, README "Format"): an 8-byte little-endian header length, a JSON header
// {name: {dtype, shape, data_offsets}}, then the data. Headers are hostile input.
#ifndef NUNSPARK_FORMATS_SAFETENSORS_H_
#define NUNSPARK_FORMATS_SAFETENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

// The reference implementation's own limit on headers.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Parses a header (the JSON text alone). Offsets become absolute: 8 + header.size() + data offset. `file_bytes` is the
// whole file's size, `what` its path for messages; TensorInfo::file is left 0.
// Errors: kDataLoss for anything malformed: bytes that do not match shape x type, ranges outside the file, overlaps,
// holes, overflow; a file shorter than its header says ("truncated": expected and found size); kUnsupported for an unknown type name.
Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view header, int64_t file_bytes,
                                                       std::string_view what);

// Reads a file's header and adds the file and its tensors to `index`.
// Errors: as above; kNotFound, kIo; kDataLoss says so when the file is a Git LFS pointer (and how to fetch the real file).
Status AddSafetensorsFile(const std::string& path, TensorIndex& index);

// One tensor to write. `data` must hold exactly shape x dtype bytes.
struct TensorToWrite {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string_view data;
};

// Writes a complete file (small results: logits, test checkpoints), atomically (temporary file, fsync, rename).
Status WriteSafetensorsFile(const std::string& path, const std::vector<TensorToWrite>& tensors);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_SAFETENSORS_H_
