// Attention of every table: the same bits as the scalar table, close to double, reading only what a row may see.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

// Keys and values of `positions` positions in exact-size blocks at odd addresses. Positions outside [0, positions) of
// the last block are filled with NaN, so that reading them shows.
class RandomKv {
 public:
  RandomKv(FloatType type, int kv_heads, int head_dim, int64_t positions, uint32_t seed) {
    const int64_t block_floats = int64_t{kv_heads} * kKvBlockPositions * head_dim;
    for (int64_t first = 0; first < positions; first += kKvBlockPositions) {
      for (auto* side : {&keys_, &values_}) {
        std::vector<float> floats = RandomFloats(block_floats, seed++);
        for (int64_t i = 0; i < block_floats; ++i) {
          if (first + i / head_dim % kKvBlockPositions >= positions) floats[static_cast<size_t>(i)] = std::nanf("");
        }
        side->floats.push_back(floats);
        side->bytes.emplace_back(1);
        AppendFloats(floats, type, side->bytes.back());
      }
    }
    for (auto* side : {&keys_, &values_}) {
      for (const auto& block : side->bytes) side->blocks.push_back(block.data() + 1);
    }
    view_ = {.type = type,
             .kv_heads = kv_heads,
             .key_dim = head_dim,
             .value_dim = head_dim,
             .value_stride = head_dim,
             .key_blocks = keys_.blocks.data(),
             .value_blocks = values_.blocks.data()};
  }

  const KvView& view() const { return view_; }
  double key(int head, int64_t position, int d) const { return At(keys_, head, position, d); }
  double value(int head, int64_t position, int d) const { return At(values_, head, position, d); }

 private:
  struct Side {
    std::vector<std::vector<float>> floats;
    std::vector<std::vector<uint8_t>> bytes;
    std::vector<const uint8_t*> blocks;
  };

  double At(const Side& side, int head, int64_t position, int d) const {
    const int64_t within = (head * int64_t{kKvBlockPositions} + position % kKvBlockPositions) * view_.key_dim + d;
    const float x = side.floats[static_cast<size_t>(position / kKvBlockPositions)][static_cast<size_t>(within)];
    if (view_.type == FloatType::kF16) return F16ToFloat(FloatToF16(x));
    if (view_.type == FloatType::kBF16) return Bf16ToFloat(FloatToBf16(x));
    return x;
  }

  Side keys_, values_;
  KvView view_;
};

struct Span {
  int64_t begin, end;
};

std::vector<float> Attend(const KernelTable& table, const RandomKv& kv, int kv_head, const std::vector<float>& q,
                          int q_heads, Span seen) {
  std::vector<float> out(q.size());
  std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(kv.view().key_dim, kv.view().value_dim)),
                             std::nanf(""));
  const float scale = 1.0f / std::sqrt(static_cast<float>(kv.view().key_dim));
  table.attend(q.data(), q_heads, kv.view(), kv_head, seen.begin, seen.end, {.scale = scale}, out.data(),
               scratch.data());
  return out;
}

constexpr Span kSpans[] = {{0, 1}, {0, 17}, {0, 64}, {0, 65}, {63, 65}, {70, 71}, {5, 200}, {128, 200}};

TEST(Attention, EveryTableEqualsScalar) {
  for (FloatType type : kAllFloatTypes) {
    for (int head_dim : {16, 20, 64, 128}) {
      const RandomKv kv(type, 2, head_dim, 200, 3);
      for (int q_heads : {1, 2, 3, 4, 7, 8}) {
        const std::vector<float> q = RandomFloats(int64_t{q_heads} * head_dim, 11);
        for (const Span& span : kSpans) {
          const std::vector<float> expected = Attend(*FindKernels("scalar"), kv, 1, q, q_heads, span);
          for (const KernelTable* table : AvailableKernels()) {
            ASSERT_TRUE(SameBits(Attend(*table, kv, 1, q, q_heads, span), expected))
                << table->name << " " << FloatName(type) << " head_dim " << head_dim << " heads " << q_heads << " ["
                << span.begin << ", " << span.end << ")";
          }
        }
      }
    }
  }
}

TEST(Attention, IsCloseToTheSoftmaxInDouble) {
  const int head_dim = 64, q_heads = 4;
  for (FloatType type : kAllFloatTypes) {
    const RandomKv kv(type, 2, head_dim, 200, 3);
    const std::vector<float> q = RandomFloats(q_heads * head_dim, 11, 3.0f);
    for (const Span& span : kSpans) {
      for (const KernelTable* table : AvailableKernels()) {
        const std::vector<float> out = Attend(*table, kv, 0, q, q_heads, span);
        for (int h = 0; h < q_heads; ++h) {
          std::vector<double> weights;
          double sum = 0;
          for (int64_t t = span.begin; t < span.end; ++t) {
            double score = 0;
            for (int d = 0; d < head_dim; ++d) score += q[static_cast<size_t>(h * head_dim + d)] * kv.key(0, t, d);
            weights.push_back(std::exp(score / std::sqrt(head_dim)));
            sum += weights.back();
          }
          for (int d = 0; d < head_dim; ++d) {
            double expected = 0;
            for (int64_t t = span.begin; t < span.end; ++t) {
              expected += weights[static_cast<size_t>(t - span.begin)] / sum * kv.value(0, t, d);
            }
            ASSERT_NEAR(out[static_cast<size_t>(h * head_dim + d)], expected, 5e-6) << table->name;
          }
        }
      }
    }
  }
}

TEST(Attention, AHeadDoesNotDependOnTheHeadsBesideIt) {
  const int head_dim = 32, q_heads = 7;
  const RandomKv kv(FloatType::kF16, 1, head_dim, 150, 3);
  const std::vector<float> q = RandomFloats(q_heads * head_dim, 11);
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> together = Attend(*table, kv, 0, q, q_heads, {3, 150});
    std::vector<float> apart;
    for (int h = 0; h < q_heads; ++h) {
      const std::vector<float> one(q.begin() + h * head_dim, q.begin() + (h + 1) * head_dim);
      const std::vector<float> out = Attend(*table, kv, 0, one, 1, {3, 150});
      apart.insert(apart.end(), out.begin(), out.end());
    }
    ASSERT_TRUE(SameBits(apart, together)) << table->name;
  }
}

TEST(Attention, DependsOnlyOnThePositionsItSees) {
  const int head_dim = 64;
  const std::vector<float> q = RandomFloats(head_dim, 11);
  // The same first 100 positions, once followed by others and once by NaN.
  const RandomKv longer(FloatType::kBF16, 1, head_dim, 128, 3), shorter(FloatType::kBF16, 1, head_dim, 100, 3);
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> a = Attend(*table, longer, 0, q, 1, {10, 100});
    const std::vector<float> b = Attend(*table, shorter, 0, q, 1, {10, 100});
    ASSERT_TRUE(SameBits(a, b)) << table->name;
    ASSERT_FALSE(std::isnan(b[0]));
  }
}

TEST(Attention, SurvivesScoresBeyondTheRangeOfTheExponential) {
  const int head_dim = 16;
  const RandomKv kv(FloatType::kF32, 1, head_dim, 130, 3);
  const std::vector<float> q = RandomFloats(head_dim, 11, 1e4f);
  const std::vector<float> expected = Attend(*FindKernels("scalar"), kv, 0, q, 1, {0, 130});
  for (float value : expected) ASSERT_TRUE(std::isfinite(value));
  for (const KernelTable* table : AvailableKernels()) {
    ASSERT_TRUE(SameBits(Attend(*table, kv, 0, q, 1, {0, 130}), expected)) << table->name;
  }
}

}  // namespace
}  // namespace nunspark
