// Element-wise kernels, conversions, selection and the choice of a table.
#include "kernels/kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "kernels/test_matrices.h"

namespace nunspark {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 100, 576};

// Checks that every table gives what the scalar table gives.
void ExpectSameBits(const std::function<std::vector<float>(const KernelTable&)>& run) {
  const std::vector<float> expected = run(*FindKernels("scalar"));
  for (const KernelTable* table : AvailableKernels()) {
    EXPECT_TRUE(SameBits(run(*table), expected)) << table->name << " size " << expected.size();
  }
}

// Every binade, both signs, the edges of exponential and conversion, and special values.
std::vector<float> ManyFloats() {
  std::vector<float> values = {0.0f,   -0.0f,  kInfinity, -kInfinity, kNan,  88.72f,
                               88.73f, -87.4f, -103.9f,   -104.1f,    1e-45f};
  std::mt19937 random(4);
  for (int i = 0; i < 200'000; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (float x = -110.0f; x < 95.0f; x += 0.00173f) values.push_back(x);
  return values;
}

TEST(Kernels, RmsNormIsTheSameOnEveryTableAndCloseToDouble) {
  for (int64_t n : kSizes) {
    for (FloatType type : kAllFloatTypes) {
      const std::vector<float> x = RandomFloats(n, 1, 5.0f);
      std::vector<uint8_t> bytes(1);
      AppendFloats(RandomFloats(n, 2), type, bytes);
      const FloatVector weight{.type = type, .size = n, .data = bytes.data() + 1};
      std::vector<float> w(x.size());
      DecodeFloats(weight, w.data());
      double squares = 0;
      for (float value : x) squares += static_cast<double>(value) * value;
      ExpectSameBits([&](const KernelTable& table) {
        std::vector<float> y = x;
        table.rms_norm(y.data(), weight, 0.0f, 1e-5f, n, y.data());
        for (size_t i = 0; i < y.size(); ++i) {
          const double expected = x[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5) * w[i];
          EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected));
        }
        return y;
      });
    }
  }
}

TEST(Kernels, RopeRotatesHalves) {
  for (int64_t pairs : {1, 8, 16, 24, 64}) {
    const std::vector<float> x = RandomFloats(2 * pairs, 1);
    std::vector<float> cos, sin;
    for (float angle : RandomFloats(pairs, 2)) {
      cos.push_back(std::cos(angle));
      sin.push_back(std::sin(angle));
    }
    ExpectSameBits([&](const KernelTable& table) {
      std::vector<float> y = x;
      table.rope_halves(y.data(), cos.data(), sin.data(), 2 * pairs);
      for (size_t i = 0; i < cos.size(); ++i) {
        EXPECT_NEAR(y[i], x[i] * cos[i] - x[i + cos.size()] * sin[i], 1e-6);
        EXPECT_NEAR(y[i + cos.size()], x[i + cos.size()] * cos[i] + x[i] * sin[i], 1e-6);
      }
      return y;
    });
  }
}

TEST(Kernels, SwiGluIsTheSameOnEveryTableForAllFloats) {
  const std::vector<float> gate = ManyFloats();
  const std::vector<float> up(gate.size(), 1.0f);
  ExpectSameBits([&](const KernelTable& table) {
    std::vector<float> out(gate.size());
    table.swiglu(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
    return out;
  });
}

TEST(Kernels, SwiGluIsCloseToDouble) {
  const std::vector<float> gate = RandomFloats(10'000, 1, 20.0f), up = RandomFloats(10'000, 2);
  ExpectSameBits([&](const KernelTable& table) {
    std::vector<float> out = gate;
    table.swiglu(out.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
    for (size_t i = 0; i < gate.size(); ++i) {
      const double expected = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
      EXPECT_NEAR(out[i], expected, 5e-7 * std::abs(expected) + 1e-37) << gate[i];
    }
    return out;
  });
}

// Softmax of {x, 0} in which 0 is the larger gives exp(x) / (1 + exp(x)); with many entries of 0 beside one x the
// exponential shows itself alone.
TEST(Kernels, TheExponentialIsWithinOneUnitInTheLastPlace) {
  for (float x = -87.0f; x < 0.0f; x += 0.0137f) {
    float values[2] = {x, 0.0f};
    Kernels().softmax(values, 2);
    const double e = std::exp(static_cast<double>(x));
    ASSERT_NEAR(values[0], e / (1 + e), 1.8e-7 * e) << x;
  }
}

TEST(Kernels, SoftmaxSumsToOneAndIsTheSameOnEveryTable) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = RandomFloats(n, 1, 30.0f);
    ExpectSameBits([&](const KernelTable& table) {
      std::vector<float> y = x;
      table.softmax(y.data(), n);
      double sum = 0;
      for (float value : y) sum += value;
      EXPECT_NEAR(sum, 1.0, 1e-6);
      return y;
    });
  }
  ExpectSameBits([](const KernelTable& table) {
    std::vector<float> y = {-kInfinity, 2.0f, 1e30f, -1e30f, 1e30f};
    table.softmax(y.data(), 5);
    EXPECT_THAT(y, ElementsAre(0.0f, 0.0f, 0.5f, 0.0f, 0.5f));
    return y;
  });
}

TEST(Kernels, AddAndAddScaledAreTheSameOnEveryTable) {
  for (int64_t n : kSizes) {
    const std::vector<float> x = RandomFloats(n, 1), y = RandomFloats(n, 2);
    ExpectSameBits([&](const KernelTable& table) {
      std::vector<float> sum = x;
      table.add(sum.data(), y.data(), n);
      for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], x[i] + y[i]);
      table.add_scaled(sum.data(), 0.3f, y.data(), n);
      for (size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum[i], std::fma(0.3f, y[i], x[i] + y[i]));
      return sum;
    });
  }
}

TEST(Kernels, LoadingEveryHalfEqualsTheScalarDefinition) {
  for (const KernelTable* table : AvailableKernels()) {
    for (FloatType type : {FloatType::kF16, FloatType::kBF16}) {
      std::vector<uint8_t> bytes(1);
      std::vector<uint32_t> expected, found;
      for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        bytes.push_back(static_cast<uint8_t>(bits));
        bytes.push_back(static_cast<uint8_t>(bits >> 8));
        const auto half = static_cast<uint16_t>(bits);
        expected.push_back(std::bit_cast<uint32_t>(type == FloatType::kF16 ? F16ToFloat(half) : Bf16ToFloat(half)));
      }
      std::vector<float> x(expected.size());
      table->load_floats(bytes.data() + 1, type, static_cast<int64_t>(x.size()), x.data());
      for (float value : x) found.push_back(std::bit_cast<uint32_t>(value));
      ASSERT_EQ(found, expected) << table->name << " " << FloatName(type);
    }
  }
}

TEST(Kernels, StoringFloatsEqualsTheScalarDefinition) {
  std::vector<float> values = ManyFloats();
  // Every half, the middle to its upper neighbour and both sides of the middle.
  for (uint32_t bits = 0; bits <= 0xffffu; ++bits) {
    const uint32_t low = std::bit_cast<uint32_t>(F16ToFloat(static_cast<uint16_t>(bits)));
    for (uint32_t offset : {0u, 0xfffu, 0x1000u, 0x1001u}) values.push_back(std::bit_cast<float>(low + offset));
    for (uint32_t offset : {0u, 0x7fffu, 0x8000u, 0x8001u}) {
      values.push_back(std::bit_cast<float>((bits << 16) + offset));
    }
  }
  for (float x = 0x1p-26f; x < 0x1p-13f; x *= 1.0001f) values.push_back(x);  // subnormal halves
  for (FloatType type : kAllFloatTypes) {
    std::vector<uint8_t> expected;
    AppendFloats(values, type, expected);
    for (const KernelTable* table : AvailableKernels()) {
      std::vector<uint8_t> bytes(expected.size() + 1);
      table->store_floats(values.data(), static_cast<int64_t>(values.size()), type, bytes.data() + 1);
      bytes.erase(bytes.begin());
      ASSERT_EQ(bytes, expected) << table->name << " " << FloatName(type);
    }
  }
}

TEST(Kernels, ConversionsOfShortRowsTouchNothingBeyondThem) {
  for (const KernelTable* table : AvailableKernels()) {
    for (FloatType type : kAllFloatTypes) {
      for (int64_t n : kSizes) {
        std::vector<uint8_t> bytes(static_cast<size_t>(n * FloatBytes(type)) + 1, 0xee);
        const std::vector<float> x = RandomFloats(n, 7);
        table->store_floats(x.data(), n, type, bytes.data());
        EXPECT_EQ(bytes.back(), 0xee);
        std::vector<float> back(x.size() + 1, 7.0f), expected(x.size() + 1, 7.0f);
        table->load_floats(bytes.data(), type, n, back.data());
        DecodeFloats({.type = type, .size = n, .data = bytes.data()}, expected.data());
        EXPECT_EQ(back, expected);
      }
    }
  }
}

TEST(Kernels, ArgMaxTakesTheLowestOfEqualsAndNeverNan) {
  for (const KernelTable* table : AvailableKernels()) {
    for (int64_t n : kSizes) {
      std::vector<float> x(static_cast<size_t>(n), -3.0f);
      EXPECT_EQ(table->argmax(x.data(), n), 0);
      for (size_t i = 0; i < x.size(); ++i) {
        std::vector<float> y = x;
        y[i] = 1.0f;
        y.back() = 1.0f;
        y[0] = i == 0 ? 1.0f : kNan;
        EXPECT_EQ(table->argmax(y.data(), n), static_cast<int64_t>(n == 1 ? 0 : i)) << table->name << " " << n;
      }
    }
    const std::vector<float> nans(40, kNan), infinities(40, -kInfinity);
    EXPECT_EQ(table->argmax(nans.data(), 40), 0);
    EXPECT_EQ(table->argmax(infinities.data(), 40), 0);
  }
}

TEST(TopK, OrdersByValueThenByIndexWithNanLast) {
  const std::vector<float> x = {1.0f, kNan, 5.0f, 1.0f, 5.0f, -kInfinity, 2.0f};
  std::vector<int32_t> indices(7);
  std::vector<float> values(7);
  TopK(x.data(), 7, 7, indices.data(), values.data());
  EXPECT_THAT(indices, ElementsAre(2, 4, 6, 0, 3, 5, 1));
  EXPECT_THAT(std::vector<float>(values.begin(), values.begin() + 3), ElementsAre(5.0f, 5.0f, 2.0f));
  TopK(x.data(), 7, 1, indices.data(), values.data());
  EXPECT_EQ(indices[0], 2);
}

TEST(TopK, EqualsAStableSort) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    const auto n = static_cast<int64_t>(1 + random() % 200);
    std::vector<float> x;
    for (int64_t i = 0; i < n; ++i) x.push_back(static_cast<float>(random() % 20));
    const int k = 1 + static_cast<int>(random() % static_cast<unsigned>(n));
    std::vector<int32_t> order(x.size()), indices(static_cast<size_t>(k));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
    std::vector<float> values(static_cast<size_t>(k));
    TopK(x.data(), n, k, indices.data(), values.data());
    order.resize(static_cast<size_t>(k));
    ASSERT_EQ(indices, order);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], x[static_cast<size_t>(indices[i])]);
  }
}

TEST(KernelChoice, EveryTableIsFoundByItsName) {
  for (const KernelTable* table : AvailableKernels()) EXPECT_EQ(FindKernels(table->name), table);
  EXPECT_STREQ(AvailableKernels().back()->name, "scalar");
  EXPECT_EQ(FindKernels("mmx"), nullptr);
}

TEST(KernelChoice, AnUnknownInstructionSetIsRefusedWithThoseThereAre) {
  ASSERT_EQ(setenv("NUNSPARK_ISA", "mmx", 1), 0);
  const Status status = CheckKernelChoice();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("NUNSPARK_ISA=mmx"));
  EXPECT_THAT(status.message(), HasSubstr("scalar"));
  ASSERT_EQ(setenv("NUNSPARK_ISA", "scalar", 1), 0);
  EXPECT_TRUE(CheckKernelChoice().ok());
  ASSERT_EQ(unsetenv("NUNSPARK_ISA"), 0);
  EXPECT_TRUE(CheckKernelChoice().ok());
}

}  // namespace
}  // namespace nunspark
