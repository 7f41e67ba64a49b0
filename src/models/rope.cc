#include "models/rope.h"

#include <algorithm>
#include <cmath>

#include "base/math.h"

namespace nunspark {
namespace {

constexpr double kPi = 3.14159265358979323846;

// llama3: low frequencies are divided by the factor, high ones kept, those between interpolated.
double Llama3Inverse(const RopeParams& p, double inverse) {
  const double wavelength = 2 * kPi / inverse;
  if (wavelength < p.original_positions / p.high_freq_factor) return inverse;
  if (wavelength > p.original_positions / p.low_freq_factor) return inverse / p.factor;
  const double smooth =
      (p.original_positions / wavelength - p.low_freq_factor) / (p.high_freq_factor - p.low_freq_factor);
  return (1 - smooth) * inverse / p.factor + smooth * inverse;
}

struct YarnRamp {
  double low, high;

  // 0 where the frequency is kept, 1 where it is divided by the factor.
  double At(int64_t pair) const { return std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0); }
};

// The pair at which a rotation turns `rotations` times over the trained length.
double YarnPair(const RopeParams& p, double dim, double rotations) {
  return dim * Log(p.original_positions / (rotations * 2 * kPi)) / (2 * Log(p.theta));
}

YarnRamp MakeYarnRamp(const RopeParams& p) {
  const double dim = static_cast<double>(p.rotary_dim);
  double low = YarnPair(p, dim, p.beta_fast);
  double high = YarnPair(p, dim, p.beta_slow);
  if (p.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  return {low, high};
}

double YarnScale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * Log(factor) + 1; }

double LongRopeAttentionFactor(const RopeParams& p) {
  if (p.attention_factor > 0) return p.attention_factor;
  if (p.factor <= 1) return 1;
  return std::sqrt(1 + Log(p.factor) / Log(p.original_positions));
}

double YarnAttentionFactor(const RopeParams& p) {
  if (p.attention_factor > 0) return p.attention_factor;
  if (p.mscale > 0 && p.mscale_all_dim > 0)
    return YarnScale(p.factor, p.mscale) / YarnScale(p.factor, p.mscale_all_dim);
  return YarnScale(p.factor, 1);
}

}  // namespace

RopeTable::RopeTable(const RopeParams& params) : params_(params) {
  Frequencies(params.theta, params.short_factor, inverse_frequencies_);
  stretched_.reserve(inverse_frequencies_.size());
  if (params.kind == RopeKind::kYarn) attention_factor_ = static_cast<float>(YarnAttentionFactor(params));
  if (params.kind == RopeKind::kLongRope) {
    attention_factor_ = static_cast<float>(LongRopeAttentionFactor(params));
    Frequencies(params.theta, params.long_factor, stretched_);
  }
}

// `divisors` [pairs]: longrope's.
void RopeTable::Frequencies(double theta, const std::vector<double>& divisors, std::vector<float>& out) const {
  const double dim = static_cast<double>(params_.rotary_dim);
  const YarnRamp ramp = params_.kind == RopeKind::kYarn ? MakeYarnRamp(params_) : YarnRamp{0, 1};
  const int64_t rotating = static_cast<int64_t>(params_.rotated_share * dim) / 2;
  out.clear();
  for (int64_t pair = 0; pair < params_.rotary_dim / 2; ++pair) {
    double inverse = 1 / Pow(theta, 2 * static_cast<double>(pair) / dim);
    switch (params_.kind) {
      case RopeKind::kDefault:
      case RopeKind::kDynamic: break;
      case RopeKind::kLinear: inverse /= params_.factor; break;
      case RopeKind::kLlama3: inverse = Llama3Inverse(params_, inverse); break;
      case RopeKind::kYarn: {
        const double scaled = ramp.At(pair);
        inverse = inverse / params_.factor * scaled + inverse * (1 - scaled);
        break;
      }
      case RopeKind::kLongRope: inverse /= divisors[static_cast<size_t>(pair)]; break;
      case RopeKind::kProportional: inverse = pair < rotating ? inverse / params_.factor : 0; break;
    }
    out.push_back(static_cast<float>(inverse));
  }
}

void RopeTable::Fill(int64_t position, int64_t length, float* cos, float* sin) {
  const std::vector<float>* inverse = &inverse_frequencies_;
  const bool beyond = params_.original_positions > 0 && static_cast<double>(length) > params_.original_positions;
  if (params_.kind == RopeKind::kLongRope && beyond) inverse = &stretched_;
  if (params_.kind == RopeKind::kDynamic && beyond) {
    if (length != stretched_length_) {
      // NTK-aware scaling of the base with the sequence's length.
      const double dim = static_cast<double>(params_.rotary_dim);
      const double stretch =
          params_.factor * static_cast<double>(length) / params_.original_positions - (params_.factor - 1);
      Frequencies(params_.theta * Pow(stretch, dim / (dim - 2)), {}, stretched_);
      stretched_length_ = length;
    }
    inverse = &stretched_;
  }
  for (size_t pair = 0; pair < inverse->size(); ++pair) {
    const float angle = static_cast<float>(position) * (*inverse)[pair];
    cos[pair] = static_cast<float>(Cos(angle)) * attention_factor_;
    sin[pair] = static_cast<float>(Sin(angle)) * attention_factor_;
  }
}

}  // namespace nunspark
