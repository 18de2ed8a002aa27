#include "tessera/model/config/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace tessera {
namespace {

void scale_llama3(const RopeConfig& rope, std::vector<float>& inv_freq) {
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto span = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto context = static_cast<float>(rope.original_max_position_embeddings);
  const auto old_context = static_cast<double>(rope.original_max_position_embeddings);
  const auto longest = static_cast<float>(old_context / rope.low_freq_factor);
  const auto shortest = static_cast<float>(old_context / rope.high_freq_factor);
  for (float& f : inv_freq) {
    const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / f;
    if (wavelength < shortest) continue;
    if (wavelength > longest) {
      f /= factor;
      continue;
    }
    const float smooth = (context / wavelength - low) / span;
    f = (1.0f - smooth) * f / factor + smooth * f;
  }
}

void scale_yarn(const RopeConfig& rope, std::int64_t rotated, std::vector<float>& inv_freq) {
  const auto dim = static_cast<double>(rotated);
  // Returns the index of the dimension pair that makes `rotations` turns within the original context. The index may be
  // fractional.
  const auto dimension_of = [&](double rotations) {
    const double wavelengths =
        static_cast<double>(rope.original_max_position_embeddings) / (rotations * 2.0 * std::numbers::pi);
    return dim * std::log(wavelengths) / (2.0 * std::log(rope.theta));
  };
  double low = dimension_of(rope.beta_fast);
  double high = dimension_of(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  if (low == high) high += 0.001;  // prevents a division by zero, as in the published code
  const auto factor = static_cast<float>(rope.factor);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float ramp =
        std::clamp((static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f, 1.0f);
    const float keep = 1.0f - ramp;
    const float position_frequency =
        std::pow(static_cast<float>(rope.theta), static_cast<float>(2 * i) / static_cast<float>(rotated));
    inv_freq[i] = 1.0f / (factor * position_frequency) * (1.0f - keep) + inv_freq[i] * keep;
  }
}

}  // namespace

std::int64_t rotary_dim(const RopeConfig& rope, std::int64_t head_dim) {
  if (rope.type == RopeType::kProportional) return head_dim;
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

std::vector<float> compute_inv_freq(const RopeConfig& rope, std::int64_t head_dim, std::int64_t context_length) {
  const std::int64_t rotated = rotary_dim(rope, head_dim);
  assert(rotated > 0 && rotated % 2 == 0);
  const bool is_long = context_length > rope.original_max_position_embeddings;
  std::vector<float> inv_freq(static_cast<std::size_t>(rotated / 2));
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotated);
    float divisor = std::pow(static_cast<float>(rope.theta), exponent);
    if (rope.type == RopeType::kLongRope)
      divisor *= static_cast<float>((is_long ? rope.long_factor : rope.short_factor)[i]);
    inv_freq[i] = 1.0f / divisor;
  }
  switch (rope.type) {
    case RopeType::kDefault:
    case RopeType::kLongRope: break;
    case RopeType::kLinear:
      for (float& f : inv_freq) f /= static_cast<float>(rope.factor);
      break;
    case RopeType::kLlama3: scale_llama3(rope, inv_freq); break;
    case RopeType::kYarn: scale_yarn(rope, rotated, inv_freq); break;
    case RopeType::kProportional: {
      const auto turning = static_cast<std::size_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor / 2);
      for (std::size_t i = 0; i < inv_freq.size(); ++i)
        inv_freq[i] = i < turning ? inv_freq[i] / static_cast<float>(rope.factor) : 0.0f;
      break;
    }
  }
  return inv_freq;
}

float attention_scaling(const RopeConfig& rope) {
  if (rope.type != RopeType::kYarn && rope.type != RopeType::kLongRope) return 1.0f;
  if (rope.attention_factor) return static_cast<float>(*rope.attention_factor);
  if (rope.factor <= 1.0) return 1.0f;
  if (rope.type == RopeType::kLongRope) {
    const auto context = static_cast<double>(rope.original_max_position_embeddings);
    return static_cast<float>(std::sqrt(1.0 + std::log(rope.factor) / std::log(context)));
  }
  const auto scale = [&](double mscale) { return 0.1 * mscale * std::log(rope.factor) + 1.0; };
  const double mscale = rope.mscale.value_or(0.0);
  const double mscale_all_dim = rope.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0) return static_cast<float>(scale(mscale) / scale(mscale_all_dim));
  return static_cast<float>(scale(1.0));
}

}  // namespace tessera
