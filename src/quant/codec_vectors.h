// Codec vectors, for tests: files of codes with scales and what they decode to. Two sets have the same form: the
// project's own (tests/data/codec, written by tools/make_codec_vectors.py and tests/oracles/make_block_vectors.py) and
// the full reference set beside the project.
#ifndef NUNSPARK_QUANT_CODEC_VECTORS_H_
#define NUNSPARK_QUANT_CODEC_VECTORS_H_

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "quant/encoding.h"

namespace nunspark {

inline const std::string kOwnCodecVectors = NUNSPARK_SOURCE_DIR "/tests/data/codec";
inline const std::string kFullCodecVectors = NUNSPARK_SOURCE_DIR "/../shared/goldens/quant/codec";

inline bool HaveFullCodecVectors() { return std::filesystem::exists(kFullCodecVectors); }

// The tensors of one file.
class CodecFile {
 public:
  explicit CodecFile(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    if (bytes_.size() >= 8) std::memcpy(&header_bytes, bytes_.data(), 8);
    data_ = 8 + header_bytes;
    header_ = ParseJson(std::string_view(bytes_).substr(8, header_bytes), path).value();
  }

  std::vector<int64_t> Shape(const std::string& name) const {
    std::vector<int64_t> shape;
    for (const Json& size : header_.Find(name)->Find("shape")->as_array()) shape.push_back(size.as_int());
    return shape;
  }

  const uint8_t* Data(const std::string& name) const {
    const int64_t offset = header_.Find(name)->Find("data_offsets")->as_array()[0].as_int();
    return reinterpret_cast<const uint8_t*>(bytes_.data()) + data_ + offset;
  }

  // The elements of a tensor whose type has the size of T.
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    size_t count = 1;
    for (int64_t size : Shape(name)) count *= static_cast<size_t>(size);
    std::vector<T> values(count);
    std::memcpy(values.data(), Data(name), count * sizeof(T));
    return values;
  }

 private:
  std::string bytes_;
  size_t data_ = 0;
  Json header_;
};

// Affine: all tensors of one number of bits and one group size.
class CodecVectors : public CodecFile {
 public:
  CodecVectors(const std::string& folder, int bits, int group_size)
      : CodecFile(folder + "/affine_b" + std::to_string(bits) + "_g" + std::to_string(group_size) + ".safetensors"),
        bits_(bits),
        group_size_(group_size) {}

  // Weights with scales and biases of `type`, as they lie in the file.
  WeightMatrix Matrix(FloatType type) const {
    const std::string prefix = std::string(FloatName(type)) + ".";
    const std::vector<int64_t> shape = Shape(prefix + "dequantized");
    return {.format = {.encoding = Encoding::kAffine,
                       .bits = static_cast<uint8_t>(bits_),
                       .group_size = static_cast<uint16_t>(group_size_),
                       .scale_type = type},
            .rows = shape[0],
            .cols = shape[1],
            .data = Data(prefix + "weight"),
            .scales = Data(prefix + "scales"),
            .biases = Data(prefix + "biases")};
  }

 private:
  int bits_, group_size_;
};

// A matrix of a set. Its file has <prefix>dequantized and, if `product`, <prefix>y, <prefix>y_rows and x.
struct CodecCase {
  std::string name;
  std::shared_ptr<const CodecFile> file;
  std::string prefix;
  bool product = false;
  WeightMatrix matrix;
  std::shared_ptr<const float> tensor_scale;  // what matrix.biases points at for nvfp4
};

namespace codec_cases {

inline CodecCase Case(const std::string& name, std::shared_ptr<const CodecFile> file, const std::string& prefix,
                      const WeightFormat& format, const char* data, const char* scales) {
  const std::vector<int64_t> shape = file->Shape(prefix + "dequantized");
  WeightMatrix matrix{.format = format, .rows = shape[0], .cols = shape[1], .data = file->Data(prefix + data)};
  if (scales != nullptr) matrix.scales = file->Data(prefix + scales);
  return {name + " " + prefix, file, prefix, false, matrix, nullptr};
}

inline void GiveTensorScale(CodecCase& c, float scale) {
  c.tensor_scale = std::make_shared<const float>(scale);
  c.matrix.biases = reinterpret_cast<const uint8_t*>(c.tensor_scale.get());
}

inline void AddAffine(const std::string& folder, std::vector<CodecCase>& cases) {
  for (int bits : {1, 2, 3, 4, 5, 6, 8}) {
    for (int group_size : {32, 64, 128}) {
      const auto file = std::make_shared<const CodecVectors>(folder, bits, group_size);
      for (FloatType type : {FloatType::kF32, FloatType::kF16, FloatType::kBF16}) {
        const WeightMatrix matrix = file->Matrix(type);
        cases.push_back({FormatName(matrix.format), file, std::string(FloatName(type)) + ".", true, matrix, nullptr});
      }
    }
  }
}

inline void AddMicroscaled(const std::string& folder, std::vector<CodecCase>& cases) {
  const struct {
    const char* name;
    Encoding encoding;
  } kModes[] = {{"mxfp4_g32", Encoding::kMxFp4}, {"mxfp8_g32", Encoding::kMxFp8}, {"nvfp4_g16", Encoding::kNvFp4}};
  for (const auto& mode : kModes) {
    const auto file = std::make_shared<const CodecFile>(folder + "/" + mode.name + ".safetensors");
    cases.push_back(Case(mode.name, file, "", FixedFormat(mode.encoding), "weight", "scales"));
    cases.back().product = true;
  }
}

}  // namespace codec_cases

// Every matrix of the full set.
inline std::vector<CodecCase> FullCodecCases() {
  std::vector<CodecCase> cases;
  codec_cases::AddAffine(kFullCodecVectors, cases);
  codec_cases::AddMicroscaled(kFullCodecVectors, cases);
  // There the tensor scale is the largest magnitude, to be divided by what the largest code and scale represent.
  CodecCase scaled =
      codec_cases::Case("nvfp4", cases.back().file, "global.", cases.back().matrix.format, "weight", "scales");
  codec_cases::GiveTensorScale(scaled, scaled.file->Values<float>("global.scale")[0] / (448.0f * 6.0f));
  cases.push_back(scaled);
  return cases;
}

// Every matrix of the project's own set.
inline std::vector<CodecCase> OwnCodecCases() {
  using codec_cases::Case;
  std::vector<CodecCase> cases;
  const auto open = [](const std::string& name) {
    return std::make_shared<const CodecFile>(kOwnCodecVectors + "/" + name + ".safetensors");
  };
  codec_cases::AddAffine(kOwnCodecVectors, cases);
  codec_cases::AddMicroscaled(kOwnCodecVectors, cases);
  CodecCase scaled =
      Case("nvfp4 scaled", open("nvfp4_g16_scaled"), "", FixedFormat(Encoding::kNvFp4), "weight", "scales");
  codec_cases::GiveTensorScale(scaled, scaled.file->Values<float>("tensor_scale")[0]);
  cases.push_back(scaled);
  for (const auto& [group, type] : {std::pair{32, FloatType::kF16}, {64, FloatType::kBF16}, {128, FloatType::kF16}}) {
    const WeightFormat format{.encoding = Encoding::kAwq,
                              .bits = 4,
                              .group_size = static_cast<uint16_t>(group),
                              .scale_type = type,
                              .order = MatrixOrder::kColumnMajor};
    const std::string name = "awq_g" + std::to_string(group) + "_" + std::string(FloatName(type));
    cases.push_back(Case(name, open(name), "", format, "qweight", "scales"));
    cases.back().matrix.biases = cases.back().file->Data("qzeros");
  }
  const WeightFormat fp8{.encoding = Encoding::kFp8Block, .bits = 8, .group_size = 128, .group_rows = 4};
  cases.push_back(Case("fp8_4x128", open("fp8_4x128_f32"), "", fp8, "weight", "weight_scale_inv"));
  const WeightFormat odd{
      .encoding = Encoding::kFp8Block, .bits = 8, .group_size = 100, .scale_type = FloatType::kBF16, .group_rows = 3};
  cases.push_back(Case("fp8_3x100", open("fp8_3x100_bf16"), "", odd, "weight", "weight_scale_inv"));
  for (CodecCase& c : cases) c.product = true;
  for (int e = static_cast<int>(Encoding::kQ4_0); e <= static_cast<int>(Encoding::kGgufMxFp4); ++e) {
    const WeightFormat format = FixedFormat(static_cast<Encoding>(e));
    const std::string name = "gguf_" + std::string(BlockName(format));
    cases.push_back(Case(name, open(name), "", format, "blocks", nullptr));
  }
  return cases;
}

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_CODEC_VECTORS_H_
