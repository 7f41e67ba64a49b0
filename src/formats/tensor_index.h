// TensorIndex: what every weight file boils down to - names, types, shapes and where the bytes are.
#ifndef NUNSPARK_FORMATS_TENSOR_INDEX_H_
#define NUNSPARK_FORMATS_TENSOR_INDEX_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

// Element types of safetensors files. Those beyond F32 F16 BF16 U8 U32 I32 I64 are known by name and size only.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kU8,
  kU32,
  kI32,
  kI64,
  kBool,
  kI8,
  kU16,
  kI16,
  kU64,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,
};

std::string_view DTypeName(DType dtype);  // "BF16", as safetensors spells it
int64_t DTypeBytes(DType dtype);
std::optional<DType> FindDType(std::string_view name);

// Limits on what files may claim; both far above any real model.
inline constexpr size_t kMaxTensorRank = 16;
inline constexpr size_t kMaxTensors = size_t{1} << 22;

// Elements x element size; nullopt for a negative dimension or a product beyond int64.
std::optional<int64_t> TensorBytes(const std::vector<int64_t>& shape, DType dtype);

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int32_t file = 0;    // index into TensorIndex::files
  int64_t offset = 0;  // absolute, in the file
  int64_t bytes = 0;
};

// "[4096, 512]", for messages.
std::string ShapeText(const std::vector<int64_t>& shape);

// A name out of a file, in quotes, shortened and with control characters escaped: for messages.
std::string QuoteName(std::string_view name);

struct SourceFile {
  std::string path;
  int64_t bytes = 0;         // as the file system says
  uint64_t header_hash = 0;  // XXH3-64 of what describes its tensors; part of a model's identity
};

class TensorIndex {
 public:
  // Adds a file; returns its index.
  int32_t AddFile(SourceFile file);

  // Errors: kDataLoss when the name is taken (names the tensor and both files); kResourceExhausted beyond kMaxTensors.
  // REQUIRES: tensor.file is the index of a file that was added.
  Status AddTensor(TensorInfo tensor);

  // As AddTensor for each; an index without tensors takes over the list as it is. After an error only some are in it.
  Status AddTensors(std::vector<TensorInfo> tensors);

  // nullptr when there is none.
  const TensorInfo* Find(std::string_view name) const;

  const std::vector<SourceFile>& files() const { return files_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

 private:
  // The slot that holds `name`, or the free one where it belongs. REQUIRES: a free slot.
  size_t FindSlot(std::string_view name) const;
  void GrowSlots(size_t tensor_count);
  Status AddSlot(size_t index);

  std::vector<SourceFile> files_;
  std::vector<TensorInfo> tensors_;
  // Hash table with linear probing: index into tensors_ + 1, 0 when free. At most half full, the size a power of two.
  // Eight bytes a tensor where a map of strings would take more than the tensor itself.
  std::vector<uint32_t> slots_;
};

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_TENSOR_INDEX_H_
