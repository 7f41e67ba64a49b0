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

// The first line of a Git LFS pointer, the small text that stands for a file that was not fetched.
bool IsLfsPointer(std::string_view start_of_file);
// kDataLoss: says that `path` is one and how to fetch the real file.
Status LfsPointerError(std::string_view path);

// Parses a header (the JSON text alone), tensors in the order of their data. Offsets become absolute: 8 + header.size()
// + data offset. `file_bytes` is the whole file's size, `what` its path for messages; TensorInfo::file is left 0.
// Errors: kDataLoss for anything malformed: bytes that do not match shape x type, ranges outside the file, overlaps,
// holes, overflow; a file shorter than its header says ("truncated": expected and found size); kUnsupported for an
// unknown type name.
Result<std::vector<TensorInfo>> ParseSafetensorsHeader(std::string_view header, int64_t file_bytes,
                                                       std::string_view what);

// Reads a file's header and adds the file and its tensors to `index`.
// Errors: as above; kNotFound, kIo; kDataLoss says so when the file is a Git LFS pointer (and how to fetch the real
// file).
Status AddSafetensorsFile(const std::string& path, TensorIndex& index);

// As AddSafetensorsFile, but hands out the tensors, so that the caller can check them first. TensorInfo::file is 0.
struct SafetensorsFile {
  SourceFile source;
  std::vector<TensorInfo> tensors;
};
Result<SafetensorsFile> ReadSafetensorsFile(const std::string& path);

// The 8 bytes of length and the JSON of a file whose data is exactly `tensors`, one after another from offset 0 of the
// data in the given order (TensorInfo::offset and file are ignored). The header is padded with spaces so that the data
// begins at a multiple of `alignment`. REQUIRES: alignment a multiple of 8; bytes = shape x dtype; no two names alike.
std::string WriteSafetensorsHeader(const std::vector<TensorInfo>& tensors, int64_t alignment);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_SAFETENSORS_H_
