// Elementary functions that give the same bits on every machine, for everything that reaches a result: RoPE tables,
// router and sampling arithmetic. The C library's differ between versions and processors.
//
// Built from IEEE double operations only (and exact fused multiply-adds), in round-to-nearest. Errors are bounds found
// by the tests, in units of the last place of the exact result; subnormal results may be one unit further off.
#ifndef NUNSPARK_BASE_MATH_H_
#define NUNSPARK_BASE_MATH_H_

namespace nunspark {

// e^x within 1 unit; 0 and infinity beyond the range of double.
double Exp(double x);

// Natural logarithm within 1 unit. -infinity of 0, NaN of negative numbers.
double Log(double x);

// x^y within 1 unit for x >= 0, with 0^0 = 1. NaN for every negative x: no caller has a use for it.
double Pow(double x, double y);

// Within 1 unit for |x| <= kMaxAngle (angles are position x frequency), also next to multiples of pi / 2. NaN beyond.
inline constexpr double kMaxAngle = 1e8;
double Sin(double x);
double Cos(double x);

// Within 1 unit.
double Tanh(double x);

// e^x - 1 and ln(1 + x), within 1 unit also next to 0. Log1p is -infinity of -1 and NaN below.
double Expm1(double x);
double Log1p(double x);

// ln(1 + e^x), within 2 units.
double Softplus(double x);

}  // namespace nunspark

#endif  // NUNSPARK_BASE_MATH_H_
