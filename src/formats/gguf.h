// One GGUF file: its metadata and where its tensors are. Versions 2 and 3, little-endian; described by
// ggml's "GGUF" page.
//
// Layout: magic "GGUF", version u32, tensor count u64, key count u64; then each key: name, type u32, value; then each
// tensor: name, dimension count u32, dimensions u64 (the fastest first), type u32, offset u64 from the data's start;
// then the data at the next multiple of general.alignment. Strings are a length u64 and bytes. All of it is hostile
// input.
#ifndef NUNSPARK_FORMATS_GGUF_H_
#define NUNSPARK_FORMATS_GGUF_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensor_index.h"
#include "nunspark/status.h"

namespace nunspark {

// Limits on what a file may claim, far above real ones: a vocabulary of 260000 tokens with its merges has some 15 MB.
inline constexpr int64_t kMaxGgufHeaderBytes = int64_t{256} << 20;
inline constexpr uint64_t kMaxGgufKeys = uint64_t{1} << 16;
inline constexpr uint64_t kMaxGgufTensors = uint64_t{1} << 20;
inline constexpr uint64_t kMaxGgufNameBytes = 1024;  // of keys and tensors; the format's own limit for tensors is 64
inline constexpr uint32_t kMaxGgufDimensions = 4;

// Types of metadata values, with the numbers of the format.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

std::string_view GgufTypeName(GgufType type);  // "u32", "string"
size_t GgufScalarBytes(GgufType type);         // 0 for strings and arrays

// A scalar, or an array of scalars of one type. Arrays keep their bytes as in the file; those of strings their text and
// four bytes more for each, half of what the file needs.
class GgufValue {
 public:
  GgufValue() = default;
  // `bytes`: little-endian scalars one after another. REQUIRES: bytes.size() a multiple of the type's size.
  GgufValue(GgufType type, bool is_array, std::string bytes);
  // `ends[i]` is where string i ends in `text`; it begins where the one before ends.
  GgufValue(bool is_array, std::string text, std::vector<uint32_t> ends);

  GgufType type() const { return type_; }  // of an array: of its elements; never kArray
  bool is_array() const { return is_array_; }
  size_t size() const;  // elements; 1 for a scalar

  // nullopt: not of that kind, or beyond int64. Booleans are not numbers. REQUIRES: i < size().
  std::optional<int64_t> Int(size_t i = 0) const;
  std::optional<double> Number(size_t i = 0) const;  // integers too; a float as the shortest decimal that means it
  std::optional<bool> Bool(size_t i = 0) const;
  std::optional<std::string_view> Text(size_t i = 0) const;

  // The value as it is in the file; of strings, all their text.
  std::string_view bytes() const { return bytes_; }

  std::string TypeName() const;  // "u32", "array of string": for messages

 private:
  GgufType type_ = GgufType::kU8;
  bool is_array_ = false;
  std::string bytes_;
  std::vector<uint32_t> ends_;  // of strings
};

struct GgufKey {
  std::string name;
  GgufValue value;
};

// A type of tensors. Blocks run along the fastest dimension. A type with a `dtype` is stored as plain numbers; one with
// a `suffix` in blocks that this build can read; one with neither is known by size only.
struct GgufTensorType {
  uint32_t id;
  std::string_view name;  // "Q4_K"
  int64_t block_elements;
  int64_t block_bytes;
  std::optional<DType> dtype;
  std::string_view suffix;  // "q4_k"
};

// nullptr: no such type.
const GgufTensorType* FindGgufTensorType(uint32_t id);
const GgufTensorType* FindGgufTensorType(std::string_view name);
// Those of all types in blocks that this build can read.
std::vector<std::string_view> GgufBlockSuffixes();
// "F32, F16, BF16, Q4_0, ...": what can be published, for messages.
std::string SupportedGgufTypes();

struct GgufTensor {
  std::string name;
  const GgufTensorType* type = nullptr;
  std::vector<int64_t> shape;  // in elements, row-major: [rows, cols], the file's order reversed; [] for one number
  int64_t offset = 0;          // absolute, in the file
  int64_t bytes = 0;
};

struct GgufFile {
  SourceFile source;  // header_hash covers everything before the data
  int64_t data_offset = 0;
  std::vector<GgufKey> keys;        // in the file's order; names are unique
  std::vector<GgufTensor> tensors;  // in the order of their data; names are unique, no two share a byte

  // nullptr when there is none.
  const GgufValue* Find(std::string_view key) const;
};

// Reads a file's header through a window of 64 KiB. What is kept is about as large as the header.
// Errors: kNotFound, kPermission, kIo; kDataLoss for anything malformed (file, key or tensor, expected, found), also a
// file shorter than its tensors ("truncated") or a Git LFS pointer; kUnsupported: version 1, big-endian files, arrays
// of arrays, tensor types this build has never heard of; kResourceExhausted beyond the limits above.
Result<GgufFile> ReadGguf(const std::string& path);

// As ReadGguf, for a file of `file_bytes` bytes that begins with `start`; `start` holds all of the header, or as much
// as there is. `what` names it in messages.
Result<GgufFile> ParseGguf(std::string_view start, int64_t file_bytes, std::string_view what);

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_H_
