// Makes GGUF files, right and wrong ones. For tests only.
#ifndef NUNSPARK_FORMATS_GGUF_TESTING_H_
#define NUNSPARK_FORMATS_GGUF_TESTING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "formats/gguf.h"

namespace nunspark {

// Collects keys and tensors and writes them in the order in which they were given. Nothing is checked: tests put wrong
// values where they want them.
class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; the key general.alignment is not added by itself

  GgufBuilder& Text(std::string_view key, std::string_view text);
  GgufBuilder& Texts(std::string_view key, const std::vector<std::string>& texts);
  GgufBuilder& Flag(std::string_view key, bool flag);
  GgufBuilder& U32(std::string_view key, uint32_t number);
  GgufBuilder& F32(std::string_view key, float number);
  // A scalar or an array of numbers of any type: T as the format's type.
  template <typename T>
  GgufBuilder& Number(std::string_view key, T number) {
    return Raw(key, TypeOf<T>(), std::string(reinterpret_cast<const char*>(&number), sizeof number));
  }
  template <typename T>
  GgufBuilder& Numbers(std::string_view key, const std::vector<T>& numbers) {
    return RawArray(key, TypeOf<T>(), numbers.size(),
                    std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)));
  }
  GgufBuilder& Flags(std::string_view key, const std::vector<bool>& flags);

  // The bytes of a value behind its type, of an array behind its length.
  GgufBuilder& Raw(std::string_view key, GgufType type, std::string_view bytes);
  GgufBuilder& RawArray(std::string_view key, GgufType type, uint64_t count, std::string_view bytes);

  // `shape` is row-major, in elements; `type` is ggml's name ("F32", "Q4_K"). Data follows that of the tensor before it
  // at the next multiple of the alignment.
  GgufBuilder& Tensor(std::string_view name, std::string_view type, std::vector<int64_t> shape, std::string data);
  // The same of one type's zeros.
  GgufBuilder& Zeros(std::string_view name, std::string_view type, std::vector<int64_t> shape);
  GgufBuilder& Floats(std::string_view name, std::vector<int64_t> shape, const std::vector<float>& values);
  // The description as it is: dimensions in the file's order, any type number and offset. Adds no data.
  GgufBuilder& RawTensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                         uint64_t offset);

  std::string Header() const;  // without the data and the padding in front of it
  std::string Bytes() const;   // the whole file

 private:
  template <typename T>
  static constexpr GgufType TypeOf() {
    if constexpr (std::is_same_v<T, float>) return GgufType::kF32;
    if constexpr (std::is_same_v<T, double>) return GgufType::kF64;
    if constexpr (std::is_same_v<T, uint8_t>) return GgufType::kU8;
    if constexpr (std::is_same_v<T, int8_t>) return GgufType::kI8;
    if constexpr (std::is_same_v<T, uint16_t>) return GgufType::kU16;
    if constexpr (std::is_same_v<T, int16_t>) return GgufType::kI16;
    if constexpr (std::is_same_v<T, uint32_t>) return GgufType::kU32;
    if constexpr (std::is_same_v<T, int32_t>) return GgufType::kI32;
    if constexpr (std::is_same_v<T, uint64_t>) return GgufType::kU64;
    return GgufType::kI64;
  }

  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  std::string keys_;
  std::string tensors_;
  std::string data_;
};

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_GGUF_TESTING_H_
