// Codec vectors, for tests: files of codes with scales and biases and what they decode to. Two sets have the same form:
// the project's own (tests/data/codec, written by tools/make_codec_vectors.py) and the full reference set beside the
// project.
#ifndef NUNSPARK_QUANT_CODEC_VECTORS_H_
#define NUNSPARK_QUANT_CODEC_VECTORS_H_

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/json.h"
#include "quant/encoding.h"

namespace nunspark {

inline const std::string kOwnCodecVectors = NUNSPARK_SOURCE_DIR "/tests/data/codec";
inline const std::string kFullCodecVectors = NUNSPARK_SOURCE_DIR "/../shared/goldens/quant/codec";

inline bool HaveFullCodecVectors() { return std::filesystem::exists(kFullCodecVectors); }

// One file: all tensors of one number of bits and one group size.
class CodecVectors {
 public:
  CodecVectors(const std::string& folder, int bits, int group_size) : bits_(bits), group_size_(group_size) {
    const std::string path =
        folder + "/affine_b" + std::to_string(bits) + "_g" + std::to_string(group_size) + ".safetensors";
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    uint64_t header_bytes = 0;
    if (bytes_.size() >= 8) std::memcpy(&header_bytes, bytes_.data(), 8);
    data_ = 8 + header_bytes;
    header_ = ParseJson(std::string_view(bytes_).substr(8, header_bytes), path).value();
  }

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
  int bits_, group_size_;
  std::string bytes_;
  size_t data_ = 0;
  Json header_;
};

}  // namespace nunspark

#endif  // NUNSPARK_QUANT_CODEC_VECTORS_H_
