#include "base/math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace nunspark {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ln 2 in two parts; the first has 42 bits, so that its products with exponents are exact.
constexpr double kLn2High = 0x1.62e42fefa3800p-1;
constexpr double kLn2Low = 0x1.ef35793c76730p-45;

// An unevaluated sum, |low| at most half a unit of high.
struct Pair {
  double high, low;
};

// Exact sum of two doubles (Knuth).
Pair TwoSum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// Exact sum when |a| >= |b| or a is 0 (Dekker).
Pair FastTwoSum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

Pair TwoProduct(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

// The nearest integer, for |x| < 2^51: adding 1.5 * 2^52 leaves no bits for a fraction.
double RoundToInteger(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

double PowerOfTwo(int exponent) { return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52); }

// sum of c[i] * x^i, c[0] first.
template <int kCount>
double Polynomial(const double (&c)[kCount], double x) {
  double sum = c[kCount - 1];
  for (int i = kCount - 2; i >= 0; --i) sum = sum * x + c[i];
  return sum;
}

// e^(x + low) = 2^exponent * (1 + rest), rest with some bits more than a double. Taylor to degree 13: |r| <= ln 2 / 2
// leaves a remainder of 4e-18.
struct ReducedExp {
  int exponent;
  Pair rest;
};

ReducedExp ReduceExp(double x, double low) {
  const double n = RoundToInteger(x * 0x1.71547652b82fep+0);
  const double high = x - n * kLn2High;
  const double tail = low - n * kLn2Low;
  const double r = high + tail;
  const double c = (high - r) + tail;
  constexpr double kInverseFactorials[] = {1.0 / 2,       1.0 / 6,        1.0 / 24,        1.0 / 120,
                                           1.0 / 720,     1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                                           1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  // e^c - 1 is c, and c * r is needed too where r is large.
  return {static_cast<int>(n), FastTwoSum(r, r * r * Polynomial(kInverseFactorials, r) + (c + c * r))};
}

// e^(x + low) for finite x.
double ExpOfPair(double x, double low) {
  if (x > 709.79) return kInfinity;
  if (x < -745.2) return 0.0;
  const ReducedExp e = ReduceExp(x, low);
  const double value = 1.0 + e.rest.high;
  // In two factors, because the exponent may lie outside that of normal doubles.
  const int half = e.exponent / 2;
  return value * PowerOfTwo(half) * PowerOfTwo(e.exponent - half);
}

// ln x for finite x > 0, with about 2^-65 relative error. With x = 2^k m and s = (m - 1) / (m + 1):
// ln m = 2 s (1 + s^2/3 + s^4/5 + ...), |s| <= 0.172; everything up to s^2/3 is carried in pairs.
Pair LogOfDouble(double x) {
  int k = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    k = -54;
  }
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  k += static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 0x1.6a09e667f3bcdp0) {
    m *= 0.5;
    k += 1;
  }
  const double f = m - 1.0;  // exact
  const Pair d = TwoSum(m, 1.0);
  Pair s;
  s.high = f / d.high;
  s.low = (std::fma(-s.high, d.high, f) - s.high * d.low) / d.high;
  Pair z = TwoProduct(s.high, s.high);
  z.low += 2.0 * s.high * s.low;
  // z^j / (2 j + 1) for j = 2 ... 12.
  constexpr double kTail[] = {1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13, 1.0 / 15,
                              1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  const double tail = z.high * z.high * Polynomial(kTail, z.high);
  constexpr Pair kThird = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
  Pair w = TwoProduct(z.high, kThird.high);
  const double w_low = w.low + z.high * kThird.low + z.low * kThird.high;
  w = FastTwoSum(w.high, tail);
  w.low += w_low;
  Pair q = TwoProduct(2.0 * s.high, w.high);
  q.low += 2.0 * (s.high * w.low + s.low * w.high);
  Pair log_m = FastTwoSum(2.0 * s.high, q.high);
  log_m.low += 2.0 * s.low + q.low;
  const double exponent = k;
  Pair sum = FastTwoSum(exponent * kLn2High, log_m.high);
  sum.low += log_m.low + exponent * kLn2Low;
  return FastTwoSum(sum.high, sum.low);
}

// x = n * pi / 2 + (high + low), |high| <= pi / 4 or a little more. Cody and Waite's method with pi / 2 in four parts:
// the first three have so few bits that their products with n < 2^27 are exact.
struct Quadrant {
  int n;
  Pair rest;
};

Quadrant ReduceAngle(double x) {
  const double n = RoundToInteger(x * 0x1.45f306dc9c883p-1);
  const double first = x - n * 0x1.921fb54000000p+0;  // exact: both are multiples of the same small unit
  const Pair second = TwoSum(first, -n * 0x1.10b4600000000p-30);
  const Pair third = TwoSum(second.high, -n * 0x1.1a62630000000p-54);
  const double low = (second.low + third.low) - n * 0x1.8a2e03707344ap-81;
  return {static_cast<int>(n), TwoSum(third.high, low)};
}

// Taylor to degree 17 and 18, on [-pi/4, pi/4]: remainders below 1e-19.
double SinOfReduced(const Pair& r) {
  constexpr double kSeries[] = {-1.0 / 6,
                                1.0 / 120,
                                -1.0 / 5040,
                                1.0 / 362880,
                                -1.0 / 39916800.0,
                                1.0 / 6227020800.0,
                                -1.0 / 1307674368000.0,
                                1.0 / 355687428096000.0};
  const double z = r.high * r.high;
  return r.high + (r.high * z * Polynomial(kSeries, z) + r.low * (1.0 - 0.5 * z));
}

double CosOfReduced(const Pair& r) {
  constexpr double kSeries[] = {1.0 / 24,
                                -1.0 / 720,
                                1.0 / 40320,
                                -1.0 / 3628800,
                                1.0 / 479001600.0,
                                -1.0 / 87178291200.0,
                                1.0 / 20922789888000.0,
                                -1.0 / 6402373705728000.0};
  const double z = r.high * r.high;
  const double half = 0.5 * z;
  const double top = 1.0 - half;
  return top + (((1.0 - top) - half) + (z * z * Polynomial(kSeries, z) - r.high * r.low));
}

double SinOfQuadrant(const Pair& rest, int quadrant) {
  const double magnitude = (quadrant & 1) == 0 ? SinOfReduced(rest) : CosOfReduced(rest);
  return (quadrant & 2) == 0 ? magnitude : -magnitude;
}

}  // namespace

double Exp(double x) {
  if (std::isnan(x)) return x;
  return ExpOfPair(x, 0.0);
}

double Log(double x) {
  if (std::isnan(x) || x == kInfinity) return x;
  if (x < 0) return kNan;
  if (x == 0) return -kInfinity;
  return LogOfDouble(x).high;
}

double Pow(double x, double y) {
  if (y == 0 || x == 1.0) return 1.0;
  if (std::isnan(x) || std::isnan(y)) return kNan;
  if (x < 0) return kNan;
  if (x == 0 || x == kInfinity || std::isinf(y)) {
    const bool grows = (x > 1.0) == (y > 0);
    return grows ? kInfinity : 0.0;
  }
  const Pair log = LogOfDouble(x);
  const double high = y * log.high;
  if (high > 710.0) return kInfinity;
  if (high < -746.0) return 0.0;
  return ExpOfPair(high, std::fma(y, log.high, -high) + y * log.low);
}

double Sin(double x) {
  if (!(std::abs(x) <= kMaxAngle)) return kNan;
  if (std::abs(x) < 0x1p-27) return x;
  const Quadrant q = ReduceAngle(x);
  return SinOfQuadrant(q.rest, q.n);
}

double Cos(double x) {
  if (!(std::abs(x) <= kMaxAngle)) return kNan;
  const Quadrant q = ReduceAngle(x);
  return SinOfQuadrant(q.rest, q.n + 1);
}

double Tanh(double x) {
  const double magnitude = std::abs(x);
  if (std::isnan(x) || magnitude < 0x1p-28) return x;
  double result = 1.0;
  if (magnitude < 20.0) {
    // tanh x = t / (t + 2) with t = e^2x - 1, taken before 1 is added so that it stays accurate for small x.
    const ReducedExp e = ReduceExp(2.0 * magnitude, 0.0);
    const double scale = PowerOfTwo(e.exponent);
    Pair t = FastTwoSum(scale - 1.0, scale * e.rest.high);
    t.low += scale * e.rest.low;
    const Pair divisor = TwoSum(t.high, 2.0);
    const double quotient = t.high / divisor.high;
    const double remainder = std::fma(-quotient, divisor.high, t.high) + t.low - quotient * (divisor.low + t.low);
    result = quotient + remainder / divisor.high;
  }
  return std::signbit(x) ? -result : result;
}

double Expm1(double x) {
  if (std::isnan(x) || std::abs(x) < 0x1p-54) return x;
  if (x > 60.0) return ExpOfPair(x, 0.0);  // the 1 is far below half a unit
  if (x < -40.0) return -1.0;
  const ReducedExp e = ReduceExp(x, 0.0);
  const double scale = PowerOfTwo(e.exponent);
  const Pair power = TwoSum(scale, -1.0);
  const Pair sum = FastTwoSum(power.high, scale * e.rest.high);
  return sum.high + (sum.low + power.low + scale * e.rest.low);
}

double Log1p(double x) {
  if (std::isnan(x) || x == kInfinity || std::abs(x) < 0x1p-54) return x;
  if (x < -1.0) return kNan;
  if (x == -1.0) return -kInfinity;
  // ln(s + e) = ln s + e / s, as e is at most half a unit of s.
  const Pair one_plus = TwoSum(1.0, x);
  const Pair log = LogOfDouble(one_plus.high);
  return log.high + (log.low + one_plus.low / one_plus.high);
}

double Softplus(double x) {
  if (std::isnan(x)) return x;
  const double beyond = Log1p(ExpOfPair(-std::abs(x), 0.0));
  return x > 0 ? x + beyond : beyond;
}

}  // namespace nunspark
