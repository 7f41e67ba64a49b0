// The tables and values of GGUF: what a header holds once it has been read.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/check.h"
#include "formats/gguf.h"

namespace nunspark {
namespace {

// ggml's ggml_type with its numbers (gguf-py, constants.py: GGMLQuantizationType, GGML_QUANT_SIZES). Missing numbers
// belonged to types that were removed again.
constexpr std::array kTensorTypes = {
    GgufTensorType{0, "F32", 1, 4, DType::kF32, ""},
    GgufTensorType{1, "F16", 1, 2, DType::kF16, ""},
    GgufTensorType{30, "BF16", 1, 2, DType::kBF16, ""},
    GgufTensorType{2, "Q4_0", 32, 18, std::nullopt, "q4_0"},
    GgufTensorType{3, "Q4_1", 32, 20, std::nullopt, "q4_1"},
    GgufTensorType{6, "Q5_0", 32, 22, std::nullopt, "q5_0"},
    GgufTensorType{7, "Q5_1", 32, 24, std::nullopt, "q5_1"},
    GgufTensorType{8, "Q8_0", 32, 34, std::nullopt, "q8_0"},
    GgufTensorType{10, "Q2_K", 256, 84, std::nullopt, "q2_k"},
    GgufTensorType{11, "Q3_K", 256, 110, std::nullopt, "q3_k"},
    GgufTensorType{12, "Q4_K", 256, 144, std::nullopt, "q4_k"},
    GgufTensorType{13, "Q5_K", 256, 176, std::nullopt, "q5_k"},
    GgufTensorType{14, "Q6_K", 256, 210, std::nullopt, "q6_k"},
    GgufTensorType{20, "IQ4_NL", 32, 18, std::nullopt, "iq4_nl"},
    GgufTensorType{23, "IQ4_XS", 256, 136, std::nullopt, "iq4_xs"},
    GgufTensorType{39, "MXFP4", 32, 17, std::nullopt, "mxfp4"},
    GgufTensorType{24, "I8", 1, 1, DType::kI8, ""},
    GgufTensorType{25, "I16", 1, 2, DType::kI16, ""},
    GgufTensorType{26, "I32", 1, 4, DType::kI32, ""},
    GgufTensorType{27, "I64", 1, 8, DType::kI64, ""},
    GgufTensorType{28, "F64", 1, 8, DType::kF64, ""},
    GgufTensorType{9, "Q8_1", 32, 36, std::nullopt, ""},
    GgufTensorType{15, "Q8_K", 256, 292, std::nullopt, ""},
    GgufTensorType{16, "IQ2_XXS", 256, 66, std::nullopt, ""},
    GgufTensorType{17, "IQ2_XS", 256, 74, std::nullopt, ""},
    GgufTensorType{18, "IQ3_XXS", 256, 98, std::nullopt, ""},
    GgufTensorType{19, "IQ1_S", 256, 50, std::nullopt, ""},
    GgufTensorType{21, "IQ3_S", 256, 110, std::nullopt, ""},
    GgufTensorType{22, "IQ2_S", 256, 82, std::nullopt, ""},
    GgufTensorType{29, "IQ1_M", 256, 56, std::nullopt, ""},
    GgufTensorType{34, "TQ1_0", 256, 54, std::nullopt, ""},
    GgufTensorType{35, "TQ2_0", 256, 66, std::nullopt, ""},
    GgufTensorType{40, "NVFP4", 64, 36, std::nullopt, ""},
    GgufTensorType{41, "Q1_0", 128, 18, std::nullopt, ""},
    GgufTensorType{42, "Q2_0", 64, 18, std::nullopt, ""},
};

template <typename T>
T Load(const std::string& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

// 1e-6 was written as the nearest float; as a double that would read 9.99999997e-07. The shortest decimal gives back
// what the writer was told.
double ShortestDecimal(float value) {
  char text[32];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double read = 0;
  const auto parsed = std::from_chars(text, written.ptr, read);
  return parsed.ec == std::errc() ? read : static_cast<double>(value);
}

}  // namespace

std::string_view GgufTypeName(GgufType type) {
  switch (type) {
    case GgufType::kU8: return "u8";
    case GgufType::kI8: return "i8";
    case GgufType::kU16: return "u16";
    case GgufType::kI16: return "i16";
    case GgufType::kU32: return "u32";
    case GgufType::kI32: return "i32";
    case GgufType::kF32: return "f32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kU64: return "u64";
    case GgufType::kI64: return "i64";
    case GgufType::kF64: return "f64";
  }
  return "unknown";
}

size_t GgufScalarBytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

GgufValue::GgufValue(GgufType type, bool is_array, std::string bytes)
    : type_(type), is_array_(is_array), bytes_(std::move(bytes)) {
  CHECK(GgufScalarBytes(type) > 0 && bytes_.size() % GgufScalarBytes(type) == 0);
}

GgufValue::GgufValue(bool is_array, std::string text, std::vector<uint32_t> ends)
    : type_(GgufType::kString), is_array_(is_array), bytes_(std::move(text)), ends_(std::move(ends)) {}

size_t GgufValue::size() const {
  return type_ == GgufType::kString ? ends_.size() : bytes_.size() / GgufScalarBytes(type_);
}

std::optional<int64_t> GgufValue::Int(size_t i) const {
  switch (type_) {
    case GgufType::kU8: return Load<uint8_t>(bytes_, i);
    case GgufType::kI8: return Load<int8_t>(bytes_, i);
    case GgufType::kU16: return Load<uint16_t>(bytes_, i);
    case GgufType::kI16: return Load<int16_t>(bytes_, i);
    case GgufType::kU32: return Load<uint32_t>(bytes_, i);
    case GgufType::kI32: return Load<int32_t>(bytes_, i);
    case GgufType::kI64: return Load<int64_t>(bytes_, i);
    case GgufType::kU64: {
      const uint64_t value = Load<uint64_t>(bytes_, i);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> GgufValue::Number(size_t i) const {
  if (type_ == GgufType::kF32) return ShortestDecimal(Load<float>(bytes_, i));
  if (type_ == GgufType::kF64) return Load<double>(bytes_, i);
  const std::optional<int64_t> value = Int(i);
  return value.has_value() ? std::optional<double>(static_cast<double>(*value)) : std::nullopt;
}

std::optional<bool> GgufValue::Bool(size_t i) const {
  return type_ == GgufType::kBool ? std::optional<bool>(bytes_[i] != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::Text(size_t i) const {
  if (type_ != GgufType::kString) return std::nullopt;
  const size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(bytes_).substr(begin, ends_[i] - begin);
}

std::string GgufValue::TypeName() const {
  return fmt::format("{}{}", is_array_ ? "array of " : "", GgufTypeName(type_));
}

const GgufTensorType* FindGgufTensorType(uint32_t id) {
  const auto found =
      std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const auto& row) { return row.id == id; });
  return found == kTensorTypes.end() ? nullptr : &*found;
}

const GgufTensorType* FindGgufTensorType(std::string_view name) {
  const auto found =
      std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const auto& row) { return row.name == name; });
  return found == kTensorTypes.end() ? nullptr : &*found;
}

std::vector<std::string_view> GgufBlockSuffixes() {
  std::vector<std::string_view> suffixes;
  for (const GgufTensorType& type : kTensorTypes) {
    if (!type.suffix.empty()) suffixes.push_back(type.suffix);
  }
  return suffixes;
}

std::string SupportedGgufTypes() {
  std::vector<std::string_view> names;
  for (const GgufTensorType& type : kTensorTypes) {
    if (type.dtype.has_value() || !type.suffix.empty()) names.push_back(type.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const GgufValue* GgufFile::Find(std::string_view key) const {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const GgufKey& entry) { return entry.name == key; });
  return found == keys.end() ? nullptr : &found->value;
}

}  // namespace nunspark
