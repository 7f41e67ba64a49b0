// Errors against the C library's long double functions, in units of the last place of double.
#include "base/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

namespace nunspark {
namespace {

static_assert(LDBL_MANT_DIG >= 64, "the reference needs more digits than double has");

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// |found - exact| in units of the last place that double has at `exact`.
double UnitsOff(double found, long double exact) {
  if (static_cast<long double>(found) == exact) return 0;
  const double rounded = std::abs(static_cast<double>(exact));
  const int exponent = std::max(std::ilogb(rounded), -1022);
  return static_cast<double>(std::abs(found - exact) / std::ldexp(1.0L, exponent - 52));
}

class Worst {
 public:
  void Add(double x, double found, long double exact) {
    const double units = UnitsOff(found, exact);
    if (!(units <= units_)) {
      units_ = units;
      x_ = x;
    }
  }
  void ExpectAtMost(double limit) const { EXPECT_LE(units_, limit) << "at x = " << x_; }

 private:
  double units_ = 0, x_ = 0;
};

TEST(Math, ExpIsWithinOneUnit) {
  std::mt19937_64 random(1);
  Worst worst;
  for (double range : {1e-9, 0.1, 1.0, 30.0, 708.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 200'000; ++i) {
      const double x = uniform(random);
      worst.Add(x, Exp(x), std::exp(static_cast<long double>(x)));
    }
  }
  worst.ExpectAtMost(1.0);
  EXPECT_EQ(Exp(0.0), 1.0);
  EXPECT_EQ(Exp(1000.0), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-1000.0), 0.0);
  EXPECT_EQ(Exp(-kInfinity), 0.0);
  EXPECT_LT(Exp(709.7), kInfinity);
  EXPECT_GT(Exp(-745.0), 0.0);  // the smallest subnormal
  EXPECT_TRUE(std::isnan(Exp(std::nan(""))));
}

TEST(Math, LogIsWithinOneUnit) {
  std::mt19937_64 random(2);
  Worst worst;
  std::uniform_real_distribution<double> exponent(-1022, 1023), near(-1e-3, 1e-3), unit(0, 4);
  for (int i = 0; i < 400'000; ++i) {
    for (double x : {std::exp2(exponent(random)), 1.0 + near(random), unit(random)}) {
      worst.Add(x, Log(x), std::log(static_cast<long double>(x)));
    }
  }
  worst.ExpectAtMost(1.0);
  EXPECT_LE(UnitsOff(Log(5e-324), std::log(static_cast<long double>(5e-324))), 1.0);
  EXPECT_EQ(Log(1.0), 0.0);
  EXPECT_EQ(Log(0.0), -kInfinity);
  EXPECT_EQ(Log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(Log(-1.0)));
}

TEST(Math, PowIsWithinOneUnit) {
  std::mt19937_64 random(3);
  Worst worst;
  // RoPE: theta to -2i / head_dim.
  for (double theta : {1e4, 1e5, 5e5, 1e6, 1e7}) {
    for (int i = -256; i <= 256; ++i) {
      const double y = i / 256.0;
      worst.Add(y, Pow(theta, y), std::pow(static_cast<long double>(theta), static_cast<long double>(y)));
    }
  }
  std::uniform_real_distribution<double> exponent(-30, 30), power(-20, 20);
  for (int i = 0; i < 300'000; ++i) {
    const double x = std::exp2(exponent(random)), y = power(random);
    worst.Add(x, Pow(x, y), std::pow(static_cast<long double>(x), static_cast<long double>(y)));
  }
  worst.ExpectAtMost(1.0);
  EXPECT_EQ(Pow(2.0, 10.0), 1024.0);
  EXPECT_EQ(Pow(0.0, 0.0), 1.0);
  EXPECT_EQ(Pow(0.0, 2.0), 0.0);
  EXPECT_EQ(Pow(0.0, -2.0), kInfinity);
  EXPECT_EQ(Pow(kInfinity, -1.0), 0.0);
  EXPECT_EQ(Pow(0.5, kInfinity), 0.0);
  EXPECT_EQ(Pow(0.5, -kInfinity), kInfinity);
  EXPECT_EQ(Pow(10.0, 400.0), kInfinity);
  EXPECT_EQ(Pow(10.0, -400.0), 0.0);
  EXPECT_EQ(Pow(1e300, 1e300), kInfinity);
  EXPECT_TRUE(std::isnan(Pow(-1.0, 2.0)));
}

TEST(Math, SinAndCosAreWithinOneUnitUpToTheLargestAngle) {
  std::mt19937_64 random(4);
  Worst sin, cos;
  const auto add = [&](double x) {
    sin.Add(x, Sin(x), std::sin(static_cast<long double>(x)));
    cos.Add(x, Cos(x), std::cos(static_cast<long double>(x)));
  };
  for (double range : {1e-6, 1.0, 10.0, 1e4, 1e7, kMaxAngle}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 200'000; ++i) add(uniform(random));
  }
  // Doubles closest to multiples of pi / 2, where nearly everything cancels.
  for (int i = 1; i < 63'000'000; i += 997) {
    const auto x = static_cast<double>(i * 1.570796326794896619231321691639751442L);
    add(x);
    add(std::nextafter(x, 0.0));
  }
  sin.ExpectAtMost(1.0);
  cos.ExpectAtMost(1.0);
  EXPECT_EQ(Sin(0.0), 0.0);
  EXPECT_TRUE(std::signbit(Sin(-0.0)));
  EXPECT_EQ(Cos(0.0), 1.0);
  EXPECT_EQ(Sin(1e-300), 1e-300);
  EXPECT_TRUE(std::isnan(Sin(kInfinity)));
  EXPECT_TRUE(std::isnan(Cos(std::nextafter(kMaxAngle, kInfinity))));
}

TEST(Math, TanhIsWithinOneUnit) {
  std::mt19937_64 random(5);
  Worst worst;
  for (double range : {1e-12, 1e-3, 0.5, 2.0, 25.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 400'000; ++i) {
      const double x = uniform(random);
      worst.Add(x, Tanh(x), std::tanh(static_cast<long double>(x)));
    }
  }
  worst.ExpectAtMost(1.0);
  EXPECT_EQ(Tanh(kInfinity), 1.0);
  EXPECT_EQ(Tanh(-kInfinity), -1.0);
  EXPECT_TRUE(std::signbit(Tanh(-0.0)));
  EXPECT_TRUE(std::isnan(Tanh(std::nan(""))));
}

TEST(Math, Expm1IsWithinOneUnitAlsoNextToZero) {
  std::mt19937_64 random(6);
  Worst worst;
  for (double range : {1e-300, 1e-18, 1e-15, 1e-9, 1e-3, 0.4, 2.0, 45.0, 65.0, 709.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 200'000; ++i) {
      const double x = uniform(random);
      worst.Add(x, Expm1(x), std::expm1(static_cast<long double>(x)));
    }
  }
  worst.ExpectAtMost(1.0);
  EXPECT_EQ(Expm1(kInfinity), kInfinity);
  EXPECT_EQ(Expm1(-kInfinity), -1.0);
  EXPECT_TRUE(std::signbit(Expm1(-0.0)));
  EXPECT_TRUE(std::isnan(Expm1(std::nan(""))));
}

TEST(Math, Log1pIsWithinOneUnitAlsoNextToZero) {
  std::mt19937_64 random(7);
  Worst worst;
  const auto add = [&](double x) { worst.Add(x, Log1p(x), std::log1p(static_cast<long double>(x))); };
  for (double range : {1e-300, 1e-18, 1e-15, 1e-9, 1e-3, 0.4, 0.9999999}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 200'000; ++i) add(uniform(random));
  }
  std::uniform_real_distribution<double> exponent(-1.0, 1023.0);
  for (int i = 0; i < 200'000; ++i) add(std::exp2(exponent(random)));
  for (double x = 0x1p-56; x < 0x1p-48; x += x / 64) {
    add(x);
    add(-x);
  }
  worst.ExpectAtMost(1.0);
  EXPECT_EQ(Log1p(kInfinity), kInfinity);
  EXPECT_EQ(Log1p(-1.0), -kInfinity);
  EXPECT_TRUE(std::isnan(Log1p(-1.5)));
  EXPECT_TRUE(std::signbit(Log1p(-0.0)));
}

TEST(Math, SoftplusIsWithinTwoUnits) {
  std::mt19937_64 random(8);
  Worst worst;
  for (double range : {1e-9, 1.0, 40.0, 700.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 200'000; ++i) {
      const double x = uniform(random);
      const long double exact = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(static_cast<long double>(x))));
      worst.Add(x, Softplus(x), exact);
    }
  }
  worst.ExpectAtMost(2.0);
  EXPECT_EQ(Softplus(kInfinity), kInfinity);
  EXPECT_EQ(Softplus(-kInfinity), 0.0);
  EXPECT_EQ(Softplus(1e300), 1e300);
  EXPECT_TRUE(std::isnan(Softplus(std::nan(""))));
}

// Bits that a faithful build must reproduce, whatever its compiler and machine.
TEST(Math, GivesTheRecordedBits) {
  uint64_t mixed = 0;
  const auto mix = [&](double value) {
    mixed = (mixed ^ std::bit_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 29;
  };
  double x = 1e-3;
  for (int i = 0; i < 20'000; ++i, x *= 1.001) {
    for (double value : {Exp(-x), Log(x), Pow(x, -0.37), Sin(x), Cos(x), Tanh(x)}) mix(value);
  }
  EXPECT_EQ(mixed, 3315929534517378341u);
  mixed = 0;
  x = 1e-3;
  for (int i = 0; i < 20'000; ++i, x *= 1.001) {
    for (double value : {Expm1(x), Expm1(-x), Log1p(x), Softplus(x), Softplus(-x)}) mix(value);
  }
  EXPECT_EQ(mixed, 14923826432602549907u);
}

}  // namespace
}  // namespace nunspark
