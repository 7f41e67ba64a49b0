// Norms, rotations, activations and caps: close to double, and the same bits on every table, at every size and address.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/kernels.h"
#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLongest = 70;

// A kernel of one value from one or two, over n of them. out may be a or b.
using ElementWise = std::function<void(const KernelTable&, const float* a, const float* b, int64_t n, float* out)>;

struct NamedKernel {
  const char* name;
  ElementWise run;
};

// gpt-oss's and Apertus's constants.
constexpr float kAlpha = 1.702f, kLimit = 7.0f;
constexpr float kAlphaP = 0.8f, kAlphaN = 1.3f, kBeta = 0.5f, kEpsilon = -1e-6f;

const NamedKernel kElementWise[] = {
    {"swiglu",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.swiglu(a, b, n, out); }},
    {"geglu",
     [](const KernelTable& t, const float* a, const float* b, int64_t n, float* out) { t.geglu(a, b, n, out); }},
    {"swiglu_clipped", [](const KernelTable& t, const float* a, const float* b, int64_t n,
                          float* out) { t.swiglu_clipped(a, b, n, kAlpha, kLimit, out); }},
    {"xielu", [](const KernelTable& t, const float* a, const float*, int64_t n,
                 float* out) { t.xielu(a, n, kAlphaP, kAlphaN, kBeta, kEpsilon, out); }},
    {"softcap",
     [](const KernelTable& t, const float* a, const float*, int64_t n, float* out) {
       std::memmove(out, a, static_cast<size_t>(n) * sizeof(float));
       t.softcap(out, 30.0f, n);
     }},
    {"scale",
     [](const KernelTable& t, const float* a, const float*, int64_t n, float* out) {
       std::memmove(out, a, static_cast<size_t>(n) * sizeof(float));
       t.scale(out, 0.37f, n);
     }},
};

// n values behind `offset` others, in memory that ends where they end.
std::vector<float> Misaligned(const std::vector<float>& values, int64_t n, int64_t offset) {
  std::vector<float> out(static_cast<size_t>(offset), kNan);
  out.insert(out.end(), values.begin(), values.begin() + n);
  return out;
}
std::vector<float> Tail(const std::vector<float>& values, int64_t offset) {
  return {values.begin() + offset, values.end()};
}

// Every binade, both signs, where exponentials end, and special values.
std::vector<float> ManyFloats() {
  std::vector<float> values = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, -kNan, 7.0f, -7.0f, 1e-45f, -1e-45f, 3e38f};
  std::mt19937 random(4);
  for (int i = 0; i < 200'000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (float x = -110.0f; x < 95.0f; x += 0.00173f) values.push_back(x);
  return values;
}

TEST(Activations, EveryTableEqualsScalarAtEverySizeAndAddress) {
  std::vector<float> a = RandomFloats(kLongest, 1, 6.0f), b = RandomFloats(kLongest, 2, 6.0f);
  a[3] = -0.0f;
  a[20] = 100.0f;
  a[40] = -100.0f;
  for (const NamedKernel& kernel : kElementWise) {
    std::vector<float> all(a.size());
    kernel.run(*FindKernels("scalar"), a.data(), b.data(), kLongest, all.data());
    for (const KernelTable* table : AvailableKernels()) {
      for (int64_t n = 1; n <= kLongest; ++n) {
        const std::vector<float> expected(all.begin(), all.begin() + n);
        for (int64_t offset = 0; offset < 5; ++offset) {
          const std::vector<float> x = Misaligned(a, n, offset), y = Misaligned(b, n, (offset + 2) % 5);
          std::vector<float> out(static_cast<size_t>(n + offset + 1), 42.0f);
          kernel.run(*table, x.data() + offset, y.data() + (offset + 2) % 5, n, out.data() + offset);
          ASSERT_EQ(out.back(), 42.0f) << kernel.name << " " << table->name << " writes behind " << n;
          out.pop_back();
          ASSERT_TRUE(SameBits(Tail(out, offset), expected)) << kernel.name << " " << table->name << " size " << n;
          std::vector<float> in_place = x;
          kernel.run(*table, in_place.data() + offset, y.data() + (offset + 2) % 5, n, in_place.data() + offset);
          ASSERT_TRUE(SameBits(Tail(in_place, offset), expected)) << kernel.name << " in place, " << table->name;
        }
      }
    }
  }
}

TEST(Activations, EveryTableEqualsScalarForAllKindsOfFloats) {
  const std::vector<float> x = ManyFloats();
  std::vector<float> y = x;
  std::reverse(y.begin(), y.end());
  for (const NamedKernel& kernel : kElementWise) {
    const auto n = static_cast<int64_t>(x.size());
    std::vector<float> expected(x.size()), out(x.size());
    kernel.run(*FindKernels("scalar"), x.data(), y.data(), n, expected.data());
    for (const KernelTable* table : AvailableKernels()) {
      kernel.run(*table, x.data(), y.data(), n, out.data());
      ASSERT_TRUE(SameBits(out, expected)) << kernel.name << " " << table->name;
    }
  }
}

// Checks f(x[i]) of a kernel against `exact` within `units` * 2^-24 * magnitude(x[i]).
void ExpectClose(const std::vector<float>& x, const std::vector<float>& found,
                 const std::function<double(double)>& exact, double units,
                 const std::function<double(double)>& magnitude) {
  double worst = 0, where = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = std::abs(found[i] - exact(x[i]));
    const double off = error / (0x1p-24 * magnitude(x[i]) + 0x1p-149);
    if (!(off <= worst)) {
      worst = off;
      where = x[i];
    }
  }
  EXPECT_LE(worst, units) << "at x = " << where;
}

std::vector<float> Sweep(float largest) {
  std::vector<float> values;
  for (float x = 1e-12f; x < largest; x *= 1.0007f) {
    values.push_back(x);
    values.push_back(-x);
  }
  return values;
}

TEST(Activations, GeGluIsCloseToDouble) {
  const std::vector<float> x = Sweep(30.0f), ones(x.size(), 1.0f);
  const double root = 0.7978845608028654f, cube = 0.044715f;
  const auto u = [&](double g) { return root * (g + cube * g * g * g); };
  const auto exact = [&](double g) { return g / (1 + std::exp(-2 * u(g))); };
  std::vector<float> out(x.size());
  Kernels().geglu(x.data(), ones.data(), static_cast<int64_t>(x.size()), out.data());
  // The exponential turns relative errors of its argument into that many times larger ones of its result.
  ExpectClose(x, out, exact, 1.0,
              [&](double g) { return std::abs(exact(g)) * (4 + 4 * std::max(0.0, -2 * u(g))) + 0x1p-100; });
  EXPECT_NEAR(exact(1.0), 0.5 * (1 + std::tanh(u(1.0))), 1e-15);
}

TEST(Activations, GeGluMultipliesBothSides) {
  const std::vector<float> gate = RandomFloats(100, 1, 3.0f), up = RandomFloats(100, 2, 3.0f);
  std::vector<float> ones(100, 1.0f), gelu(100), out(100);
  Kernels().geglu(gate.data(), ones.data(), 100, gelu.data());
  Kernels().geglu(gate.data(), up.data(), 100, out.data());
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], gelu[i] * up[i]);
}

TEST(Activations, SwiGluClippedIsCloseToDouble) {
  const std::vector<float> gate = RandomFloats(50'000, 1, 6.0f), up = RandomFloats(50'000, 2, 6.0f);
  std::vector<float> out(gate.size());
  Kernels().swiglu_clipped(gate.data(), up.data(), static_cast<int64_t>(gate.size()), kAlpha, kLimit, out.data());
  bool high = false, low = false, gates = false;
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = std::min(gate[i], kLimit), u = std::clamp(up[i], -kLimit, kLimit);
    const double scaled = static_cast<double>(kAlpha) * g;
    const double expected = g / (1 + std::exp(-scaled)) * (u + 1);
    // u + 1 is rounded before it is a factor, to 2^-24 of the larger of the two.
    const double allowed =
        0x1p-24 * std::abs(g / (1 + std::exp(-scaled))) * ((4 + 2 * std::max(0.0, -scaled)) * std::abs(u + 1) + 1);
    ASSERT_NEAR(out[i], expected, allowed) << gate[i] << " " << up[i];
    high |= up[i] > kLimit;
    low |= up[i] < -kLimit;
    gates |= gate[i] > kLimit;
  }
  EXPECT_TRUE(high && low && gates);
}

TEST(Activations, XieluIsCloseToDouble) {
  const std::vector<float> x = Sweep(100.0f);
  std::vector<float> out(x.size());
  Kernels().xielu(x.data(), static_cast<int64_t>(x.size()), kAlphaP, kAlphaN, kBeta, kEpsilon, out.data());
  const auto curved = [](double v) {
    if (v > 0) return static_cast<double>(kAlphaP) * v * v;
    return (std::expm1(std::min(v, static_cast<double>(kEpsilon))) - v) * static_cast<double>(kAlphaN);
  };
  const double beta = kBeta;
  ExpectClose(
      x, out, [&](double v) { return curved(v) + beta * v; }, 3.0,
      [&](double v) {
        const double minus_one = v > 0 ? 0 : std::expm1(std::min(v, static_cast<double>(kEpsilon)));
        return std::abs(curved(v)) + std::abs(beta * v) + std::abs(minus_one) * static_cast<double>(kAlphaN);
      });
}

// With alpha_n = beta = 1 and epsilon = 0 negative x gives (expm1(x) - x) + x, in which the difference is exact for
// small x: what remains is expm1 itself, which e^x - 1 would get wrong in every digit.
TEST(Activations, XieluKeepsAllDigitsNextToZero) {
  std::vector<float> x;
  for (float v = -1e-12f; v > -0.4f; v *= 1.0007f) x.push_back(v);
  std::vector<float> out(x.size());
  Kernels().xielu(x.data(), static_cast<int64_t>(x.size()), 1.0f, 1.0f, 1.0f, 0.0f, out.data());
  ExpectClose(
      x, out, [](double v) { return std::expm1(v); }, 3.0, [](double v) { return std::abs(std::expm1(v)); });
}

TEST(Activations, SoftcapIsCloseToDoubleAlsoNextToZero) {
  for (float cap : {1.0f, 15.0f, 30.0f, 50.0f}) {
    const std::vector<float> x = Sweep(1000.0f);
    std::vector<float> out = x;
    Kernels().softcap(out.data(), cap, static_cast<int64_t>(x.size()));
    const double c = cap;
    const auto exact = [&](double v) { return std::tanh(v / c) * c; };
    ExpectClose(x, out, exact, 4.0, [&](double v) { return std::abs(exact(v)); });
  }
  std::vector<float> special = {0.0f, -0.0f, kInfinity, -kInfinity, kNan, 1e-45f};
  Kernels().softcap(special.data(), 1.0f, 6);
  EXPECT_TRUE(SameBits(special, {0.0f, -0.0f, 1.0f, -1.0f, kNan, 1e-45f}));
}

TEST(Activations, ScaleMultiplies) {
  const std::vector<float> x = RandomFloats(100, 1);
  std::vector<float> y = x;
  Kernels().scale(y.data(), 0.37f, 100);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] * 0.37f);
}

std::vector<uint8_t> Stored(const std::vector<float>& values, FloatType type, size_t misalignment) {
  std::vector<uint8_t> bytes(misalignment);
  AppendFloats(values, type, bytes);
  return bytes;
}

TEST(RmsNorm, EveryTableEqualsScalarAndIsCloseToDouble) {
  for (FloatType type : kAllFloatTypes) {
    for (float offset : {0.0f, 1.0f}) {
      for (int64_t n = 1; n <= kLongest; ++n) {
        const std::vector<float> values = RandomFloats(n, static_cast<uint32_t>(n), 5.0f);
        const std::vector<uint8_t> bytes = Stored(RandomFloats(n, 2), type, 1);
        const FloatVector weight{.type = type, .size = n, .data = bytes.data() + 1};
        std::vector<float> w(values.size()), expected(values.size());
        DecodeFloats(weight, w.data());
        FindKernels("scalar")->rms_norm(values.data(), weight, offset, 1e-5f, n, expected.data());
        double squares = 0;
        for (float value : values) squares += static_cast<double>(value) * value;
        const double factor = 1 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(1e-5f));
        for (size_t i = 0; i < values.size(); ++i) {
          const double exact = values[i] * factor * static_cast<double>(w[i] + offset);
          ASSERT_NEAR(expected[i], exact, 10 * 0x1p-24 * std::abs(exact));
        }
        for (const KernelTable* table : AvailableKernels()) {
          for (int64_t shift = 0; shift < 3; ++shift) {
            std::vector<float> y = Misaligned(values, n, shift);
            table->rms_norm(y.data() + shift, weight, offset, 1e-5f, n, y.data() + shift);
            ASSERT_TRUE(SameBits(Tail(y, shift), expected)) << table->name << " " << FloatName(type) << " " << n;
          }
        }
      }
    }
  }
}

TEST(RmsNorm, WithoutWeightEqualsAWeightOfOne) {
  for (int64_t n = 1; n <= kLongest; ++n) {
    const std::vector<float> x = RandomFloats(n, 3, 5.0f);
    const std::vector<uint8_t> ones = Stored(std::vector<float>(x.size(), 1.0f), FloatType::kBF16, 0);
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<float> with(x.size()), without(x.size()), zero_plus_one(x.size());
      table->rms_norm(x.data(), {.type = FloatType::kBF16, .size = n, .data = ones.data()}, 0.0f, 1e-6f, n,
                      with.data());
      table->rms_norm(x.data(), {}, 0.0f, 1e-6f, n, without.data());
      ASSERT_TRUE(SameBits(with, without)) << table->name << " " << n;
      const std::vector<uint8_t> zeros(x.size() * 2);
      table->rms_norm(x.data(), {.type = FloatType::kBF16, .size = n, .data = zeros.data()}, 1.0f, 1e-6f, n,
                      zero_plus_one.data());
      ASSERT_TRUE(SameBits(with, zero_plus_one)) << table->name << " " << n;
    }
  }
}

// The interleaved form is the half-split one on reordered values: the same arithmetic, so the same bits.
TEST(Rope, PairsEqualHalvesOnReorderedValues) {
  for (int64_t pairs = 1; pairs <= kLongest; ++pairs) {
    const auto half = static_cast<size_t>(pairs);
    const std::vector<float> x = RandomFloats(2 * pairs, 1);
    std::vector<float> cos, sin, halves(x.size()), expected(x.size());
    for (float angle : RandomFloats(pairs, 2)) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    for (size_t i = 0; i < half; ++i) {
      halves[i] = x[2 * i];
      halves[i + half] = x[2 * i + 1];
    }
    FindKernels("scalar")->rope_halves(halves.data(), cos.data(), sin.data(), 2 * pairs);
    for (size_t i = 0; i < half; ++i) {
      expected[2 * i] = halves[i];
      expected[2 * i + 1] = halves[i + half];
      ASSERT_NEAR(halves[i], static_cast<double>(x[2 * i]) * cos[i] - static_cast<double>(x[2 * i + 1]) * sin[i], 1e-6);
    }
    for (const KernelTable* table : AvailableKernels()) {
      for (int64_t offset = 0; offset < 5; ++offset) {
        std::vector<float> y = Misaligned(x, 2 * pairs, offset);
        table->rope_pairs(y.data() + offset, cos.data(), sin.data(), 2 * pairs);
        ASSERT_TRUE(SameBits(Tail(y, offset), expected)) << table->name << " pairs " << pairs << " offset " << offset;
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
