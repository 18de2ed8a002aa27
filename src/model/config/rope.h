// Rotary position embedding: which frequencies a model was trained with.
//
// Row p of the rotation table is cos(p·f_i)·s and sin(p·f_i)·s with f = compute_inv_freq(), s = attention_scaling().
// The variants and their defaults are those of Hugging Face transformers 5 (modeling_rope_utils.py); the papers:
//   default  Su et al., RoFormer, arXiv 2104.09864
//   linear   Chen et al., Position Interpolation, arXiv 2306.15595
//   yarn     Peng et al., YaRN, arXiv 2309.00071
//   llama3   Llama 3.1 reference code, apply_scaling() in models/llama3/reference_impl/model.py
//   longrope Ding et al., LongRoPE, arXiv 2402.13753, as Phi 3 has it
//   mrope    the default frequencies, positions in three dimensions: Qwen2-VL, arXiv 2409.12191
//   proportional  the default frequencies of the first pairs of a head, 0 of the others: Gemma 4
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

enum class RopeType {
  kDefault,   // f_i = θ^(-2i/d)
  kLinear,    // f_i / factor
  kLlama3,    // long wavelengths divided by factor, short ones kept, a ramp between
  kYarn,      // the same with YaRN's ramp, and cos and sin scaled
  kLongRope,  // f_i / factor_i, by one of two lists of factors; cos and sin scaled
  // f_i / factor with d all of the head; 0 for the pairs past partial_rotary_factor, which therefore stay as they are.
  kProportional,
};
std::string_view rope_type_name(RopeType type);  // "default", "linear", …

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;                 // the part of each head, from its start, that is rotated
  double factor = 1.0;                                // all but default; longrope: for attention_scaling() alone
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn, longrope: context length before scaling
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  double beta_fast = 32.0;                            // yarn: rotations over the old context, above which f_i is kept
  double beta_slow = 1.0;                             // yarn: … below which f_i is divided by factor
  bool truncate = true;                               // yarn: ramp bounds rounded outwards to whole dimensions
  std::optional<double> attention_factor = std::nullopt;  // yarn, longrope: replaces attention_scaling()'s formula
  std::optional<double> mscale = std::nullopt;            // yarn: both or neither have an effect
  std::optional<double> mscale_all_dim = std::nullopt;
  std::vector<double> short_factor = {};  // longrope: of contexts up to the original one, [rotary_dim / 2]
  std::vector<double> long_factor = {};   // longrope: of longer contexts
  // Where tokens have positions in three dimensions (M-RoPE): how many of the rotated pairs turn by each of them, time,
  // height and width; ops/rows/rotary.h says which pairs. Empty: all turn by one.
  std::vector<std::int64_t> sections = {};
  bool interleaved_sections = false;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// What the rotation depends on in the rest of the config.
struct RopeContext {
  std::int64_t max_position_embeddings = 0;
  std::int64_t head_dim = 0;
  bool partial_rotary = false;  // whether the architecture may rotate a part of each head
  double default_part = 1.0;    // of a head, where the file does not say
  bool sections = false;        // whether tokens of the architecture have positions in three dimensions
};

// Reads `rope_parameters` (new spelling) or `rope_theta` and `rope_scaling` (old) from the members of config.json.
// Fails with invalid_argument on wrong values, unimplemented on other variants (dynamic, and mrope where
// the context has no sections). `file` names the
// source in messages.
Result<RopeConfig> read_rope_config(const Json& config, const std::string& file, const RopeContext& context);

// Dimensions of each head that are rotated, from its first on: even. Proportional: all of them.
std::int64_t rotary_dim(const RopeConfig& rope, std::int64_t head_dim);

// [rotary_dim / 2] angles per position, for dimension pairs (i, i + rotary_dim / 2). Computed in float32 in the order
// transformers computes them, so that the results agree to the last bit or two: at position 100 000 a relative error
// of 1e-6 would turn the first pair by 0.1 rad. `context_length`, which longrope alone looks at, is the longest
// sequence that is meant to be run: the long factors serve all of its positions where it is above the original
// context, since a row's rotation must not depend on how long its text will become. 0: the original context.
// Precondition: head_dim even and > 0.
std::vector<float> compute_inv_freq(const RopeConfig& rope, std::int64_t head_dim, std::int64_t context_length = 0);

// What cos and sin are multiplied with: 1 except for yarn and longrope.
float attention_scaling(const RopeConfig& rope);

}  // namespace tessera
