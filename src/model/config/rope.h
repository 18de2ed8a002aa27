// Computes the frequencies of a model's rotary position embedding.
//
// Row p of the rotation table is cos(p·f_i)·s and sin(p·f_i)·s, where f_i is element i of compute_inv_freq() and s is
// attention_scaling().
// The variants and their defaults are those of Hugging Face transformers 5 (modeling_rope_utils.py). Their sources are:
//   default  Su et al., RoFormer, arXiv 2104.09864
//   linear   Chen et al., Position Interpolation, arXiv 2306.15595
//   yarn     Peng et al., YaRN, arXiv 2309.00071
//   llama3   Llama 3.1 reference code, apply_scaling() in models/llama3/reference_impl/model.py
//   longrope Ding et al., LongRoPE, arXiv 2402.13753, in Phi 3's form
//   mrope    Qwen2-VL, arXiv 2409.12191: the default frequencies, with positions in three dimensions
//   proportional  Gemma 4: the default frequencies for the first pairs of a head, frequency 0 for the others
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The formulas compute a pair's frequency from the default f_i = θ^(-2i/d), in which d is the number of rotated
// dimensions of a head.
enum class RopeType {
  kDefault,   // f_i
  kLinear,    // f_i / factor
  kLlama3,    // f_i / factor for long wavelengths, f_i for short ones, a linear ramp in between
  kYarn,      // YaRN's ramp between f_i / factor and f_i; cos and sin are scaled
  kLongRope,  // f_i / factor_i with one of two lists of factors; cos and sin are scaled
  // Like kLinear, but d is the size of the whole head. Only the pairs in the first fraction of the head
  // (partial_rotary_factor) are rotated. The other pairs have frequency 0.
  kProportional,
};
std::string_view rope_type_name(RopeType type);  // "default", "linear", …

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;  // the fraction of each head that is rotated; it begins at the head's start
  // All types except default use `factor`. Longrope uses it only in attention_scaling().
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn, longrope: context length before scaling
  double low_freq_factor = 1.0;                       // llama3: pairs with fewer turns than this get f_i / factor
  double high_freq_factor = 4.0;                      // llama3: pairs with more turns than this keep f_i
  double beta_fast = 32.0;  // yarn: a pair that turns more often than this within the original context keeps f_i
  double beta_slow = 1.0;   // yarn: a pair that turns less often than this gets f_i / factor
  bool truncate = true;     // yarn: the bounds of the ramp are rounded outwards to whole pairs
  std::optional<double> attention_factor = std::nullopt;  // yarn, longrope: replaces the formula of attention_scaling()
  std::optional<double> mscale = std::nullopt;            // yarn: mscale and mscale_all_dim take effect only together
  std::optional<double> mscale_all_dim = std::nullopt;
  std::vector<double> short_factor = {};  // longrope: [rotary_dim / 2], for contexts up to the original context
  std::vector<double> long_factor = {};   // longrope: [rotary_dim / 2], for longer contexts
  // yarn: if not 0, queries at position p are multiplied by 1 + query_growth · log(1 + ⌊p / original⌋), where original
  // is original_max_position_embeddings (Llama 4, Ministral 3).
  double query_growth = 0;
  // For M-RoPE, in which a token's position has three dimensions: how many rotated pairs use the position in
  // time, in height and in width. ops/rows/rotary.h says which pairs these are. If empty, a position is one number and
  // all pairs use it.
  std::vector<std::int64_t> sections = {};
  bool interleaved_sections = false;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Other properties of the model on which the rotation depends.
struct RopeContext {
  std::int64_t max_position_embeddings = 0;
  std::int64_t head_dim = 0;
  bool partial_rotary = false;  // whether the architecture may rotate a part of each head
  double default_part = 1.0;    // default of partial_rotary_factor
  bool query_growth = false;    // whether queries of the architecture may grow with the position
  bool sections = false;        // whether tokens of the architecture have positions in three dimensions
  // Defaults of RopeConfig::sections and interleaved_sections. It is an error if default sections are used and do not
  // add up to the number of rotated pairs.
  std::vector<std::int64_t> default_sections = {};
  bool interleaved_by_default = false;
};

// Reads `rope_parameters` (new spelling) or `rope_theta` and `rope_scaling` (old) from the members of config.json.
// Returns invalid_argument for wrong values. Returns unimplemented for a variant that RopeType lacks (dynamic), and
// for mrope if context.sections is false. `file` names the source in messages.
Result<RopeConfig> read_rope_config(const Json& config, const std::string& file, const RopeContext& context);

// Returns how many of a head's dimensions are rotated, counted from the head's start. The number is even. For
// proportional it is the size of the whole head.
std::int64_t rotary_dim(const RopeConfig& rope, std::int64_t head_dim);

// Returns [rotary_dim / 2] frequencies, in radians per position, for dimension pairs (i, i + rotary_dim / 2). They are
// computed in float32 by the same operations in the same order as in transformers, so that results agree to the last
// bit or two. Larger differences would matter: at position 100 000 a relative error of 1e-6 would turn the first pair
// by 0.1 rad. `context_length` is the length of the longest sequence to be run, where 0 means the original context.
// Only longrope uses this length. If it exceeds the original context, the long factors are used for all positions,
// because a row's rotation must not depend on how long its text will become. Precondition: head_dim is even and > 0.
std::vector<float> compute_inv_freq(const RopeConfig& rope, std::int64_t head_dim, std::int64_t context_length = 0);

// Returns the factor by which cos and sin are multiplied: 1 except for yarn and longrope.
float attention_scaling(const RopeConfig& rope);

}  // namespace tessera
