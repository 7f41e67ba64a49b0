// Attention of every table: the same bits as the scalar table, close to double, reading only what a row may see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What one position of a layer holds. A latent's values are the first value_dim elements of its keys.
struct Shape {
  int key_dim;
  int value_dim;
  bool latent = false;
};

constexpr Shape kPlain64{.key_dim = 64, .value_dim = 64};
constexpr Shape kLatent{.key_dim = 576, .value_dim = 512, .latent = true};

// Keys and values of `positions` positions in exact-size blocks at odd addresses. Positions outside [0, positions) of
// the last block are filled with NaN, so that reading them shows.
class RandomKv {
 public:
  RandomKv(FloatType type, int kv_heads, Shape shape, int64_t positions, uint32_t seed)
      : keys_{.dim = shape.key_dim}, values_{.dim = shape.value_dim}, latent_(shape.latent) {
    Fill(keys_, type, kv_heads, positions, seed);
    if (!shape.latent) Fill(values_, type, kv_heads, positions, seed + 1000);
    const Side& values = shape.latent ? keys_ : values_;
    view_ = {.type = type,
             .kv_heads = kv_heads,
             .key_dim = shape.key_dim,
             .value_dim = shape.value_dim,
             .value_stride = values.dim,
             .key_blocks = keys_.blocks.data(),
             .value_blocks = values.blocks.data()};
  }

  const KvView& view() const { return view_; }
  double key(int head, int64_t position, int d) const { return At(keys_, head, position, d); }
  double value(int head, int64_t position, int d) const { return At(latent_ ? keys_ : values_, head, position, d); }

 private:
  struct Side {
    int dim;
    std::vector<std::vector<float>> floats = {};
    std::vector<std::vector<uint8_t>> bytes = {};
    std::vector<const uint8_t*> blocks = {};
  };

  static void Fill(Side& side, FloatType type, int kv_heads, int64_t positions, uint32_t seed) {
    const int64_t block_floats = int64_t{kv_heads} * kKvBlockPositions * side.dim;
    for (int64_t first = 0; first < positions; first += kKvBlockPositions) {
      std::vector<float> floats = RandomFloats(block_floats, seed++);
      for (int64_t i = 0; i < block_floats; ++i) {
        if (first + i / side.dim % kKvBlockPositions >= positions) floats[static_cast<size_t>(i)] = std::nanf("");
      }
      side.bytes.emplace_back(1);
      AppendFloats(floats, type, side.bytes.back());
      side.floats.push_back(std::move(floats));
    }
    for (const auto& block : side.bytes) side.blocks.push_back(block.data() + 1);
  }

  double At(const Side& side, int head, int64_t position, int d) const {
    const int64_t within = (head * int64_t{kKvBlockPositions} + position % kKvBlockPositions) * side.dim + d;
    const float x = side.floats[static_cast<size_t>(position / kKvBlockPositions)][static_cast<size_t>(within)];
    if (view_.type == FloatType::kF16) return F16ToFloat(FloatToF16(x));
    if (view_.type == FloatType::kBF16) return Bf16ToFloat(FloatToBf16(x));
    return x;
  }

  Side keys_, values_;
  bool latent_;
  KvView view_;
};

struct Span {
  int64_t begin, end;
};

constexpr Span kSpans[] = {{0, 1}, {0, 17}, {0, 64}, {0, 65}, {63, 65}, {70, 71}, {5, 200}, {128, 200}};

AttendParams ScaleOnly(const RandomKv& kv) {
  return {.scale = 1.0f / std::sqrt(static_cast<float>(kv.view().key_dim))};
}

std::vector<float> Attend(const KernelTable& table, const RandomKv& kv, int kv_head, const std::vector<float>& q,
                          int q_heads, Span seen, const AttendParams& params) {
  const KvView& view = kv.view();
  std::vector<float> out(static_cast<size_t>(q_heads * view.value_dim));
  std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(view.key_dim, view.value_dim)), std::nanf(""));
  table.attend(q.data(), q_heads, view, kv_head, seen.begin, seen.end, params, out.data(), scratch.data());
  return out;
}

std::vector<float> Attend(const KernelTable& table, const RandomKv& kv, int kv_head, const std::vector<float>& q,
                          int q_heads, Span seen) {
  return Attend(table, kv, kv_head, q, q_heads, seen, ScaleOnly(kv));
}

// The definition, in double.
std::vector<double> Exact(const RandomKv& kv, int kv_head, const std::vector<float>& q, int q_heads, Span seen,
                          const AttendParams& params) {
  const KvView& view = kv.view();
  std::vector<double> out;
  for (int h = 0; h < q_heads; ++h) {
    std::vector<double> weights;
    double largest = params.sinks == nullptr ? -INFINITY : params.sinks[h];
    for (int64_t t = seen.begin; t < seen.end; ++t) {
      double score = 0;
      for (int d = 0; d < view.key_dim; ++d) {
        score += q[static_cast<size_t>(h * view.key_dim + d)] * kv.key(kv_head, t, d);
      }
      score *= params.scale;
      const double cap = params.softcap;
      if (cap != 0) score = std::tanh(score / cap) * cap;
      weights.push_back(score);
      largest = std::max(largest, score);
    }
    double sum = params.sinks == nullptr ? 0 : std::exp(params.sinks[h] - largest);
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (int d = 0; d < view.value_dim; ++d) {
      double value = 0;
      for (int64_t t = seen.begin; t < seen.end; ++t) {
        value += weights[static_cast<size_t>(t - seen.begin)] / sum * kv.value(kv_head, t, d);
      }
      out.push_back(value);
    }
  }
  return out;
}

void ExpectClose(const std::vector<float>& found, const std::vector<double>& exact, const std::string& what) {
  ASSERT_EQ(found.size(), exact.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - exact[i]);
    if (!(error <= worst)) worst = error;
  }
  ASSERT_LE(worst, 5e-6) << what;
}

std::string Describe(const KernelTable& table, const KvView& view, int q_heads, Span span) {
  return std::string(table.name) + " " + std::string(FloatName(view.type)) + " keys " + std::to_string(view.key_dim) +
         " values " + std::to_string(view.value_dim) + " heads " + std::to_string(q_heads) + " [" +
         std::to_string(span.begin) + ", " + std::to_string(span.end) + ")";
}

// Every table against scalar and double, over all spans, group sizes of query heads, and the ways to make weights.
void CheckShape(Shape shape, FloatType type, std::initializer_list<int> heads) {
  const RandomKv kv(type, 2, shape, 200, 3);
  const std::vector<float> sinks = {0.3f, -2.0f, 4.0f, -kInfinity, 0.0f, 1.0f, 20.0f, -50.0f};
  const AttendParams plain = ScaleOnly(kv);
  const AttendParams all[] = {plain,
                              {.scale = plain.scale, .softcap = 2.0f},
                              {.scale = plain.scale, .sinks = sinks.data()},
                              {.scale = plain.scale, .softcap = 5.0f, .sinks = sinks.data()}};
  for (int q_heads : heads) {
    const std::vector<float> q = RandomFloats(int64_t{q_heads} * shape.key_dim, 11, 3.0f);
    for (const Span& span : kSpans) {
      for (const AttendParams& params : all) {
        const std::vector<float> expected = Attend(*FindKernels("scalar"), kv, 1, q, q_heads, span, params);
        ExpectClose(expected, Exact(kv, 1, q, q_heads, span, params),
                    Describe(*FindKernels("scalar"), kv.view(), q_heads, span));
        for (const KernelTable* table : AvailableKernels()) {
          ASSERT_TRUE(SameBits(Attend(*table, kv, 1, q, q_heads, span, params), expected))
              << Describe(*table, kv.view(), q_heads, span) << " softcap " << params.softcap << " sinks "
              << (params.sinks != nullptr);
        }
      }
    }
  }
}

TEST(Attention, EveryTableEqualsScalarAndDouble) {
  for (FloatType type : kAllFloatTypes) {
    for (int dim : {16, 20, 64}) CheckShape({.key_dim = dim, .value_dim = dim}, type, {1, 2, 3, 4, 7, 8});
    CheckShape({.key_dim = 128, .value_dim = 128}, type, {4});
  }
}

TEST(Attention, DimensionsNeedNotBeMultiplesOfAnything) {
  for (int dim : {1, 3, 15, 17, 33, 80, 127}) {
    CheckShape({.key_dim = dim, .value_dim = dim}, FloatType::kF16, {1, 4});
    CheckShape({.key_dim = dim, .value_dim = dim}, FloatType::kF32, {2});
  }
  CheckShape({.key_dim = 256, .value_dim = 256}, FloatType::kF16, {8});
}

TEST(Attention, KeysAndValuesMayDifferInWidth) {
  CheckShape({.key_dim = 192, .value_dim = 128}, FloatType::kBF16, {1, 4});
  CheckShape({.key_dim = 24, .value_dim = 40}, FloatType::kF32, {3});
  CheckShape({.key_dim = 21, .value_dim = 5}, FloatType::kF16, {7});
}

TEST(Attention, ValuesMayBeTheFirstPartOfTheKeys) {
  for (FloatType type : kAllFloatTypes) {
    CheckShape(kLatent, type, {1, 6});
    CheckShape({.key_dim = 40, .value_dim = 33, .latent = true}, type, {5});
  }
  CheckShape({.key_dim = 64, .value_dim = 64, .latent = true}, FloatType::kF16, {2});
}

// The same numbers once as a latent and once as keys and values of their own.
TEST(Attention, ALatentEqualsSeparateKeysAndValues) {
  const RandomKv latent(FloatType::kF16, 1, kLatent, 150, 3);
  std::vector<std::vector<uint8_t>> values;
  std::vector<const uint8_t*> blocks;
  for (int64_t b = 0; b < 3; ++b) {
    values.emplace_back();
    for (int64_t p = 0; p < kKvBlockPositions; ++p) {
      const uint8_t* const key = latent.view().key_blocks[b] + p * kLatent.key_dim * 2;
      values.back().insert(values.back().end(), key, key + kLatent.value_dim * 2);
    }
    blocks.push_back(values.back().data());
  }
  KvView separate = latent.view();
  separate.value_stride = separate.value_dim;
  separate.value_blocks = blocks.data();
  const std::vector<float> q = RandomFloats(3 * kLatent.key_dim, 11);
  for (const KernelTable* table : AvailableKernels()) {
    std::vector<float> out(static_cast<size_t>(3 * kLatent.value_dim));
    std::vector<float> scratch(static_cast<size_t>(AttentionScratchFloats(kLatent.key_dim, kLatent.value_dim)));
    table->attend(q.data(), 3, separate, 0, 2, 150, ScaleOnly(latent), out.data(), scratch.data());
    ASSERT_TRUE(SameBits(Attend(*table, latent, 0, q, 3, {2, 150}), out)) << table->name;
  }
}

TEST(Attention, AHeadDoesNotDependOnTheHeadsBesideIt) {
  for (const Shape& shape : {Shape{.key_dim = 32, .value_dim = 32}, kLatent}) {
    constexpr int kHeads = 7;
    const RandomKv kv(FloatType::kF16, 1, shape, 150, 3);
    const std::vector<float> q = RandomFloats(kHeads * shape.key_dim, 11), sinks = RandomFloats(kHeads, 12, 2.0f);
    for (const KernelTable* table : AvailableKernels()) {
      AttendParams params = ScaleOnly(kv);
      params.softcap = 3.0f;
      params.sinks = sinks.data();
      const std::vector<float> together = Attend(*table, kv, 0, q, kHeads, {3, 150}, params);
      for (int group : {1, 2, 4}) {
        std::vector<float> apart;
        for (int h = 0; h < kHeads; h += group) {
          const int count = std::min(group, kHeads - h);
          const std::vector<float> some(q.begin() + h * shape.key_dim, q.begin() + (h + count) * shape.key_dim);
          params.sinks = sinks.data() + h;
          const std::vector<float> out = Attend(*table, kv, 0, some, count, {3, 150}, params);
          apart.insert(apart.end(), out.begin(), out.end());
        }
        ASSERT_TRUE(SameBits(apart, together)) << table->name << " in groups of " << group;
      }
    }
  }
}

TEST(Attention, DependsOnlyOnThePositionsItSees) {
  const std::vector<float> q = RandomFloats(64, 11);
  // The same first 100 positions, once followed by others and once by NaN.
  const RandomKv longer(FloatType::kBF16, 1, kPlain64, 128, 3), shorter(FloatType::kBF16, 1, kPlain64, 100, 3);
  for (const KernelTable* table : AvailableKernels()) {
    AttendParams params = ScaleOnly(longer);
    for (float softcap : {0.0f, 20.0f}) {
      params.softcap = softcap;
      const std::vector<float> a = Attend(*table, longer, 0, q, 1, {10, 100}, params);
      const std::vector<float> b = Attend(*table, shorter, 0, q, 1, {10, 100}, params);
      ASSERT_TRUE(SameBits(a, b)) << table->name;
      ASSERT_FALSE(std::isnan(b[0]));
    }
  }
}

TEST(Attention, ASinkOfMinusInfinityIsNoSinkAndALargeOneTakesAllWeight) {
  const RandomKv kv(FloatType::kF32, 1, kPlain64, 100, 3);
  const std::vector<float> q = RandomFloats(64, 11);
  for (const KernelTable* table : AvailableKernels()) {
    const std::vector<float> none = Attend(*table, kv, 0, q, 1, {0, 100});
    AttendParams params = ScaleOnly(kv);
    const float absent = -kInfinity, large = 1e4f;
    params.sinks = &absent;
    EXPECT_TRUE(SameBits(Attend(*table, kv, 0, q, 1, {0, 100}, params), none)) << table->name;
    params.sinks = &large;
    EXPECT_TRUE(SameBits(Attend(*table, kv, 0, q, 1, {0, 100}, params), std::vector<float>(64, 0.0f))) << table->name;
  }
}

TEST(Attention, SurvivesScoresBeyondTheRangeOfTheExponential) {
  const RandomKv kv(FloatType::kF32, 1, {.key_dim = 16, .value_dim = 16}, 130, 3);
  const std::vector<float> q = RandomFloats(16, 11, 1e4f);
  const std::vector<float> expected = Attend(*FindKernels("scalar"), kv, 0, q, 1, {0, 130});
  for (float value : expected) ASSERT_TRUE(std::isfinite(value));
  for (const KernelTable* table : AvailableKernels()) {
    ASSERT_TRUE(SameBits(Attend(*table, kv, 0, q, 1, {0, 130}), expected)) << table->name;
  }
}

}  // namespace
}  // namespace nunspark
