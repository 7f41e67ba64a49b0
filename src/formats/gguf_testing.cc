#include "formats/gguf_testing.h"

#include <utility>

#include "base/check.h"

namespace nunspark {
namespace {

template <typename T>
std::string Scalar(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string String(std::string_view text) { return Scalar(uint64_t{text.size()}) + std::string(text); }

}  // namespace

GgufBuilder& GgufBuilder::Text(std::string_view key, std::string_view text) {
  return Raw(key, GgufType::kString, String(text));
}

GgufBuilder& GgufBuilder::Texts(std::string_view key, const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes += String(text);
  return RawArray(key, GgufType::kString, texts.size(), bytes);
}

GgufBuilder& GgufBuilder::Flag(std::string_view key, bool flag) {
  return Raw(key, GgufType::kBool, std::string(1, flag ? '\1' : '\0'));
}

GgufBuilder& GgufBuilder::U32(std::string_view key, uint32_t number) { return Number(key, number); }

GgufBuilder& GgufBuilder::F32(std::string_view key, float number) { return Number(key, number); }

GgufBuilder& GgufBuilder::Flags(std::string_view key, const std::vector<bool>& flags) {
  std::string bytes;
  for (const bool flag : flags) bytes += flag ? '\1' : '\0';
  return RawArray(key, GgufType::kBool, flags.size(), bytes);
}

GgufBuilder& GgufBuilder::Raw(std::string_view key, GgufType type, std::string_view bytes) {
  keys_ += String(key) + Scalar(static_cast<uint32_t>(type));
  keys_ += bytes;
  ++key_count_;
  return *this;
}

GgufBuilder& GgufBuilder::RawArray(std::string_view key, GgufType type, uint64_t count, std::string_view bytes) {
  return Raw(key, GgufType::kArray, Scalar(static_cast<uint32_t>(type)) + Scalar(count) + std::string(bytes));
}

GgufBuilder& GgufBuilder::Tensor(std::string_view name, std::string_view type, std::vector<int64_t> shape,
                                 std::string data) {
  const GgufTensorType* const row = FindGgufTensorType(type);
  CHECK(row != nullptr);
  data_.resize((data_.size() + alignment - 1) / alignment * alignment, '\0');
  RawTensor(name, std::vector<uint64_t>(shape.rbegin(), shape.rend()), row->id, data_.size());
  data_ += data;
  return *this;
}

GgufBuilder& GgufBuilder::Zeros(std::string_view name, std::string_view type, std::vector<int64_t> shape) {
  const GgufTensorType* const row = FindGgufTensorType(type);
  CHECK(row != nullptr);
  int64_t elements = 1;
  for (const int64_t dimension : shape) elements *= dimension;
  std::string data(static_cast<size_t>(elements / row->block_elements * row->block_bytes), '\0');
  return Tensor(name, type, std::move(shape), std::move(data));
}

GgufBuilder& GgufBuilder::Floats(std::string_view name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return Tensor(name, "F32", std::move(shape),
                std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

GgufBuilder& GgufBuilder::RawTensor(std::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                                    uint64_t offset) {
  tensors_ += String(name) + Scalar(static_cast<uint32_t>(dimensions.size()));
  for (const uint64_t dimension : dimensions) tensors_ += Scalar(dimension);
  tensors_ += Scalar(type) + Scalar(offset);
  ++tensor_count_;
  return *this;
}

std::string GgufBuilder::Header() const {
  return "GGUF" + Scalar(version) + Scalar(tensor_count_) + Scalar(key_count_) + keys_ + tensors_;
}

std::string GgufBuilder::Bytes() const {
  std::string bytes = Header();
  bytes.resize((bytes.size() + alignment - 1) / alignment * alignment, '\0');
  return bytes + data_;
}

}  // namespace nunspark
