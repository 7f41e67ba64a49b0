// Bits recorded once: what keeps results equal between compilers, machines and revisions, beyond tables being equal to
// each other. A change here changes every output of the engine and must be meant.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

// Numbers from integers alone: the distributions of the standard library differ between implementations.
class Numbers {
 public:
  uint32_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  // In [-1, 1), times `range`.
  float Float(float range) { return (static_cast<float>(Next() % 65536u) / 32768.0f - 1.0f) * range; }
  std::vector<float> Floats(size_t count, float range) {
    std::vector<float> values(count);
    for (float& value : values) value = Float(range);
    return values;
  }

 private:
  uint64_t state_ = 1;
};

uint64_t Mix(uint64_t mixed, const std::vector<float>& values) {
  for (float value : values) {
    mixed = (mixed ^ std::bit_cast<uint32_t>(value)) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

void ExpectBits(uint64_t recorded, const std::function<std::vector<float>(const KernelTable&)>& run) {
  for (const KernelTable* table : AvailableKernels()) EXPECT_EQ(Mix(0, run(*table)), recorded) << table->name;
}

std::vector<float> Product(const KernelTable& table, const WeightFormat& format) {
  constexpr int64_t kCols = 640, kOuts = 6, kRows = 3;
  Numbers numbers;
  std::vector<uint8_t> data, scales, biases;
  if (format.encoding == Encoding::kAffine) {
    for (int64_t i = 0; i < kOuts * RowBytes(format, kCols); ++i) data.push_back(static_cast<uint8_t>(numbers.Next()));
    const auto groups = static_cast<size_t>(kOuts * kCols / format.group_size);
    AppendFloats(numbers.Floats(groups, 0.01f), format.scale_type, scales);
    AppendFloats(numbers.Floats(groups, 0.1f), format.scale_type, biases);
  } else {
    AppendFloats(numbers.Floats(kOuts * kCols, 0.1f), format.scale_type, data);
  }
  const WeightMatrix w{.format = format,
                       .rows = kOuts,
                       .cols = kCols,
                       .data = data.data(),
                       .scales = scales.data(),
                       .biases = biases.data()};
  const std::vector<float> x = numbers.Floats(kRows * kCols, 3.0f);
  std::vector<float> y(kRows * kOuts), scratch(static_cast<size_t>(MatMulScratchFloats(w, kRows)));
  table.matmul(w, {}, x.data(), kCols, kRows, 0, kOuts, y.data(), kOuts, scratch.data());
  return y;
}

// Codes and scales below 0x40 are finite in every encoding that takes them as they are.
std::vector<float> ProductOfCodes(const KernelTable& table, const WeightFormat& format) {
  constexpr int64_t kCols = 1280, kOuts = 8, kRows = 3;
  Numbers numbers;
  const auto bytes = [&](int64_t count) {
    std::vector<uint8_t> made(static_cast<size_t>(count));
    for (uint8_t& byte : made) byte = static_cast<uint8_t>(numbers.Next() & 0x3f);
    return made;
  };
  const std::vector<uint8_t> data = bytes(DataBytes(format, kOuts, kCols));
  std::vector<uint8_t> scales, biases = bytes(BiasBytes(format, kOuts, kCols));
  const int64_t scale_bytes = ScaleBytes(format, kOuts, kCols);
  const bool floats = format.encoding == Encoding::kAffine || format.encoding == Encoding::kAwq ||
                      format.encoding == Encoding::kFp8Block;
  if (floats) {
    const auto count = static_cast<size_t>(scale_bytes / FloatBytes(format.scale_type));
    AppendFloats(numbers.Floats(count, 0.01f), format.scale_type, scales);
  } else {
    scales = bytes(scale_bytes);
  }
  const WeightMatrix w{.format = format,
                       .rows = kOuts,
                       .cols = kCols,
                       .data = data.data(),
                       .scales = scales.data(),
                       .biases = biases.empty() ? nullptr : biases.data()};
  const std::vector<float> x = numbers.Floats(kRows * kCols, 3.0f);
  std::vector<float> y(kRows * kOuts), scratch(static_cast<size_t>(MatMulScratchFloats(w, kRows)));
  table.matmul(w, {}, x.data(), kCols, kRows, 0, kOuts, y.data(), kOuts, scratch.data());
  return y;
}

TEST(RecordedBits, MatMulOfEveryDecodedFormat) {
  for (const KernelTable* table : AvailableKernels()) {
    uint64_t mixed = 0;
    for (const WeightFormat& format : DecodedFormats()) mixed = Mix(mixed, ProductOfCodes(*table, format));
    EXPECT_EQ(mixed, 11750390737567083698u) << table->name;
  }
}

TEST(RecordedBits, MatMulOfEveryFormat) {
  for (const KernelTable* table : AvailableKernels()) {
    uint64_t floats = 0, affine = 0;
    for (const WeightFormat& format : NativeFormats()) {
      uint64_t& mixed = format.encoding == Encoding::kAffine ? affine : floats;
      mixed = Mix(mixed, Product(*table, format));
    }
    EXPECT_EQ(floats, 9289147130000108988u) << table->name;
    EXPECT_EQ(affine, 2731666705589204952u) << table->name;
  }
}

TEST(RecordedBits, Attention) {
  ExpectBits(8766406891691534168u, [](const KernelTable& table) {
    constexpr int kDim = 48, kHeads = 3;
    Numbers numbers;
    std::vector<uint8_t> blocks[4];
    for (auto& block : blocks) AppendFloats(numbers.Floats(kKvBlockPositions * kDim, 2.0f), FloatType::kF16, block);
    const uint8_t* keys[] = {blocks[0].data(), blocks[1].data()};
    const uint8_t* values[] = {blocks[2].data(), blocks[3].data()};
    const KvView kv{.format = {.type = FloatType::kF16},
                    .kv_heads = 1,
                    .key_dim = kDim,
                    .value_dim = kDim,
                    .value_width = kDim,
                    .key_blocks = keys,
                    .value_blocks = values};
    const std::vector<float> q = numbers.Floats(kHeads * kDim, 2.0f);
    std::vector<float> out(q.size()), scratch(static_cast<size_t>(AttentionScratchFloats(kDim, kDim)));
    table.attend(q.data(), kHeads, kv, 0, 3, 117, {.scale = 0.14f}, out.data(), scratch.data());
    return out;
  });
}

TEST(RecordedBits, AttentionOverCodes) {
  ExpectBits(3251496140903822408u, [](const KernelTable& table) {
    constexpr int kDim = 80, kHeads = 3;
    Numbers numbers;
    std::vector<float> all;
    for (const KvFormat& format : {KvFormat{.bits = 8, .group_size = 64}, KvFormat{.bits = 4, .group_size = 32}}) {
      std::vector<uint8_t> blocks[4];
      for (int b = 0; b < 4; ++b) {
        blocks[b].resize(static_cast<size_t>(KvHeadBytes(format, kDim)));
        const KvSide side = b < 2 ? KvSide::kKeys : KvSide::kValues;
        for (int t = 0; t < kKvBlockPositions; ++t) {
          table.store_kv(numbers.Floats(kDim, 2.0f).data(), kDim, format, side, t, blocks[b].data());
        }
      }
      const uint8_t* keys[] = {blocks[0].data(), blocks[1].data()};
      const uint8_t* values[] = {blocks[2].data(), blocks[3].data()};
      const KvView kv{.format = format,
                      .kv_heads = 1,
                      .key_dim = kDim,
                      .value_dim = kDim,
                      .value_width = kDim,
                      .key_blocks = keys,
                      .value_blocks = values};
      const std::vector<float> q = numbers.Floats(kHeads * kDim, 2.0f);
      std::vector<float> out(q.size()), scratch(static_cast<size_t>(AttentionScratchFloats(kDim, kDim)));
      table.attend(q.data(), kHeads, kv, 0, 3, 117, {.scale = 0.14f}, out.data(), scratch.data());
      all.insert(all.end(), out.begin(), out.end());
    }
    return all;
  });
}

TEST(RecordedBits, NormSoftmaxAndActivation) {
  ExpectBits(13929228269266642390u, [](const KernelTable& table) {
    constexpr int64_t kSize = 1000;
    Numbers numbers;
    std::vector<float> x = numbers.Floats(kSize, 8.0f);
    const std::vector<float> up = numbers.Floats(kSize, 2.0f);
    std::vector<uint8_t> weight;
    AppendFloats(numbers.Floats(kSize, 1.0f), FloatType::kBF16, weight);
    std::vector<float> gated(x.size());
    table.swiglu(x.data(), up.data(), kSize, gated.data());
    table.rms_norm(gated.data(), {.type = FloatType::kBF16, .size = kSize, .data = weight.data()}, 0.0f, 1e-6f, kSize,
                   gated.data());
    table.softmax(x.data(), kSize);
    gated.insert(gated.end(), x.begin(), x.end());
    return gated;
  });
}

TEST(RecordedBits, OtherActivationsAndRotation) {
  ExpectBits(4776902904654524945u, [](const KernelTable& table) {
    constexpr int64_t kSize = 1000;
    Numbers numbers;
    const std::vector<float> x = numbers.Floats(kSize, 12.0f), up = numbers.Floats(kSize, 9.0f);
    std::vector<float> all(5 * kSize);
    table.geglu(x.data(), up.data(), kSize, all.data());
    table.swiglu_clipped(x.data(), up.data(), kSize, 1.702f, 7.0f, all.data() + kSize);
    table.xielu(x.data(), kSize, 0.8f, 1.3f, 0.5f, -1e-6f, all.data() + 2 * kSize);
    std::copy(x.begin(), x.end(), all.begin() + 3 * kSize);
    table.softcap(all.data() + 3 * kSize, 5.0f, kSize);
    std::copy(x.begin(), x.end(), all.begin() + 4 * kSize);
    table.rope_pairs(all.data() + 4 * kSize, up.data(), up.data() + kSize / 2, kSize);
    return all;
  });
}

TEST(RecordedBits, AttentionToALatentWithSinksAndSoftcap) {
  ExpectBits(6026502357432666040u, [](const KernelTable& table) {
    constexpr int kKeyDim = 36, kValueDim = 24, kHeads = 5;
    Numbers numbers;
    std::vector<uint8_t> blocks[2];
    for (auto& block : blocks) AppendFloats(numbers.Floats(kKvBlockPositions * kKeyDim, 2.0f), FloatType::kBF16, block);
    const uint8_t* keys[] = {blocks[0].data(), blocks[1].data()};
    const KvView kv{.format = {.type = FloatType::kBF16},
                    .kv_heads = 1,
                    .key_dim = kKeyDim,
                    .value_dim = kValueDim,
                    .value_width = kKeyDim,
                    .key_blocks = keys,
                    .value_blocks = keys};
    const std::vector<float> q = numbers.Floats(kHeads * kKeyDim, 2.0f), sinks = numbers.Floats(kHeads, 4.0f);
    std::vector<float> out(kHeads * kValueDim);
    std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(kKeyDim, kValueDim)));
    const AttendParams params{.scale = 0.17f, .softcap = 6.0f, .sinks = sinks.data()};
    table.attend(q.data(), kHeads, kv, 0, 3, 117, params, out.data(), scratch.data());
    return out;
  });
}

}  // namespace
}  // namespace nunspark
