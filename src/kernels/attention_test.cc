// Attention of every table: the same bits as the scalar table, close to double, reading only what a row may see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>

#include "kernels/kernels.h"
#include "kernels/test_kv.h"
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

constexpr KvFormat kF32{.type = FloatType::kF32}, kF16{};
constexpr KvFormat kCodes8{.bits = 8, .group_size = 64}, kCodes4{.bits = 4, .group_size = 32};

// Keys and values of `positions` positions in exact-size blocks at odd addresses. Bytes that nothing is stored in are
// 0xff, so that reading floats, or scales, of other positions shows as NaN.
class RandomKv {
 public:
  RandomKv(const KvFormat& format, int kv_heads, Shape shape, int64_t positions, uint32_t seed)
      : keys_{.dim = shape.key_dim}, values_{.dim = shape.value_dim}, latent_(shape.latent) {
    Fill(keys_, format, KvSide::kKeys, kv_heads, positions, seed);
    if (!shape.latent) Fill(values_, format, KvSide::kValues, kv_heads, positions, seed + 1000);
    const Side& values = shape.latent ? keys_ : values_;
    view_ = {.format = format,
             .kv_heads = kv_heads,
             .key_dim = shape.key_dim,
             .value_dim = shape.value_dim,
             .value_width = values.dim,
             .key_blocks = keys_.blocks.data(),
             .value_blocks = values.blocks.data()};
  }

  const KvView& view() const { return view_; }
  float key(int head, int64_t position, int d) const { return At(keys_, KvSide::kKeys, head, position, d); }
  float value(int head, int64_t position, int d) const {
    return At(latent_ ? keys_ : values_, KvSide::kValues, head, position, d);
  }

 private:
  struct Side {
    int dim;
    std::vector<std::vector<uint8_t>> bytes = {};
    std::vector<const uint8_t*> blocks = {};
  };

  static void Fill(Side& side, const KvFormat& format, KvSide which, int kv_heads, int64_t positions, uint32_t seed) {
    const int64_t head_bytes = KvHeadBytes(format, side.dim);
    for (int64_t first = 0; first < positions; first += kKvBlockPositions) {
      std::vector<uint8_t>& block = side.bytes.emplace_back(static_cast<size_t>(1 + kv_heads * head_bytes), 0xff);
      const std::vector<float> floats = RandomFloats(int64_t{kv_heads} * kKvBlockPositions * side.dim, seed++);
      for (int64_t row = 0; row < kv_heads * kKvBlockPositions; ++row) {
        const int64_t head = row / kKvBlockPositions, t = row % kKvBlockPositions;
        if (first + t >= positions) continue;
        FindKernels("scalar")->store_kv(floats.data() + row * side.dim, side.dim, format, which, static_cast<int>(t),
                                        block.data() + 1 + head * head_bytes);
      }
    }
    for (const auto& block : side.bytes) side.blocks.push_back(block.data() + 1);
  }

  float At(const Side& side, KvSide which, int head, int64_t position, int d) const {
    const uint8_t* const block = side.blocks[static_cast<size_t>(position / kKvBlockPositions)];
    return StoredElement(view_.format, side.dim, which, block + head * KvHeadBytes(view_.format, side.dim),
                         position % kKvBlockPositions, d);
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
        score += double{q[static_cast<size_t>(h * view.key_dim + d)]} * kv.key(kv_head, t, d);
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

// Over codes, queries and weights are rounded to 16 bits.
double Tolerance(const KvFormat& format) { return format.bits == 0 ? 5e-6 : 2e-3; }

void ExpectClose(const std::vector<float>& found, const std::vector<double>& exact, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(found.size(), exact.size());
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(found[i] - exact[i]);
    if (!(error <= worst)) worst = error;
  }
  ASSERT_LE(worst, tolerance) << what;
}

std::string Describe(const KernelTable& table, const KvView& view, int q_heads, Span span) {
  return std::string(table.name) + " " + KvFormatName(view.format) + " keys " + std::to_string(view.key_dim) +
         " values " + std::to_string(view.value_dim) + " heads " + std::to_string(q_heads) + " [" +
         std::to_string(span.begin) + ", " + std::to_string(span.end) + ")";
}

// Every table against scalar and double, over all spans, group sizes of query heads, and the ways to make weights.
void CheckShape(Shape shape, const KvFormat& format, std::initializer_list<int> heads) {
  const RandomKv kv(format, 2, shape, 200, 3);
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
        ExpectClose(expected, Exact(kv, 1, q, q_heads, span, params), Tolerance(format),
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
  for (const KvFormat& format : AllKvFormats()) {
    for (int dim : {16, 20, 64}) CheckShape({.key_dim = dim, .value_dim = dim}, format, {1, 2, 3, 4, 7, 8});
    CheckShape({.key_dim = 128, .value_dim = 128}, format, {4});
  }
}

TEST(Attention, DimensionsNeedNotBeMultiplesOfAnything) {
  for (int dim : {1, 3, 15, 17, 33, 80, 127}) {
    CheckShape({.key_dim = dim, .value_dim = dim}, kF16, {1, 4});
    CheckShape({.key_dim = dim, .value_dim = dim}, kF32, {2});
    CheckShape({.key_dim = dim, .value_dim = dim}, kCodes8, {1, 4});
    CheckShape({.key_dim = dim, .value_dim = dim}, kCodes4, {1, 2, 4});
  }
  CheckShape({.key_dim = 256, .value_dim = 256}, kF16, {8});
  CheckShape({.key_dim = 256, .value_dim = 256}, kCodes4, {1, 8});
}

TEST(Attention, KeysAndValuesMayDifferInWidth) {
  CheckShape({.key_dim = 192, .value_dim = 128}, {.type = FloatType::kBF16}, {1, 4});
  for (const KvFormat& format : {kF32, kCodes8, kCodes4}) CheckShape({.key_dim = 24, .value_dim = 40}, format, {3});
  for (const KvFormat& format : {kF16, kCodes8, kCodes4}) CheckShape({.key_dim = 21, .value_dim = 5}, format, {7});
}

TEST(Attention, ValuesMayBeTheFirstPartOfTheKeys) {
  for (const FloatType type : kAllFloatTypes) {
    CheckShape(kLatent, {.type = type}, {1, 6});
    CheckShape({.key_dim = 40, .value_dim = 33, .latent = true}, {.type = type}, {5});
  }
  CheckShape({.key_dim = 64, .value_dim = 64, .latent = true}, kF16, {2});
}

// The same numbers once as a latent and once as keys and values of their own.
TEST(Attention, ALatentEqualsSeparateKeysAndValues) {
  const RandomKv latent(kF16, 1, kLatent, 150, 3);
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
  separate.value_width = separate.value_dim;
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
  constexpr Shape kNarrow{.key_dim = 32, .value_dim = 32};
  for (const auto& [shape, format] : {std::pair(kNarrow, kF16), std::pair(kLatent, kF16), std::pair(kNarrow, kCodes8),
                                      std::pair(kPlain64, kCodes4)}) {
    constexpr int kHeads = 7;
    const RandomKv kv(format, 1, shape, 150, 3);
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
  for (const KvFormat& format : AllKvFormats()) {
    // The same first 100 positions, once followed by others and once by NaN.
    const RandomKv longer(format, 1, kPlain64, 128, 3), shorter(format, 1, kPlain64, 100, 3);
    for (const KernelTable* table : AvailableKernels()) {
      AttendParams params = ScaleOnly(longer);
      for (float softcap : {0.0f, 20.0f}) {
        params.softcap = softcap;
        const std::vector<float> a = Attend(*table, longer, 0, q, 1, {10, 100}, params);
        const std::vector<float> b = Attend(*table, shorter, 0, q, 1, {10, 100}, params);
        ASSERT_TRUE(SameBits(a, b)) << table->name << " " << KvFormatName(format);
        ASSERT_FALSE(std::isnan(b[0]));
      }
    }
  }
}

TEST(Attention, ASinkOfMinusInfinityIsNoSinkAndALargeOneTakesAllWeight) {
  const RandomKv kv(kF32, 1, kPlain64, 100, 3);
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
  const RandomKv kv(kF32, 1, {.key_dim = 16, .value_dim = 16}, 130, 3);
  const std::vector<float> q = RandomFloats(16, 11, 1e4f);
  const std::vector<float> expected = Attend(*FindKernels("scalar"), kv, 0, q, 1, {0, 130});
  for (float value : expected) ASSERT_TRUE(std::isfinite(value));
  for (const KernelTable* table : AvailableKernels()) {
    ASSERT_TRUE(SameBits(Attend(*table, kv, 0, q, 1, {0, 130}), expected)) << table->name;
  }
}

}  // namespace
}  // namespace nunspark
