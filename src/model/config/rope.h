// Rotary position embedding: the frequencies with which a model was trained.
//
// Row p of the rotation table is cos(p·f_i)·s and sin(p·f_i)·s with f = compute_inv_freq(), s = attention_scaling().
// The variants and their defaults are those of Hugging Face transformers 5 (modeling_rope_utils.py); the papers:
//   default  Su et al., RoFormer, arXiv 2104.09864
//   linear   Chen et al., Position Interpolation, arXiv 2306.15595
//   yarn     Peng et al., YaRN, arXiv 2309.00071
//   llama3   Llama 3.1 reference code, apply_scaling() in models/llama3/reference_impl/model.py
//   longrope Ding et al., LongRoPE, arXiv 2402.13753, in Phi 3's form
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
  kYarn,      // ramp as in YaRN, and cos and sin scaled
  kLongRope,  // f_i / factor_i, by one of two lists of factors; cos and sin scaled
  // f_i / factor, with d the size of the whole head; 0 for the pairs past partial_rotary_factor, which therefore stay
  // as they are.
  kProportional,
};
std::string_view rope_type_name(RopeType type);  // "default", "linear", …

struct RopeConfig {
  RopeType type = RopeType::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;  // the rotated part of each head, from its start
  // used by all types but default; longrope uses it only in attention_scaling()
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // llama3, yarn, longrope: context length before scaling
  double low_freq_factor = 1.0;                       // llama3
  double high_freq_factor = 4.0;                      // llama3
  double beta_fast = 32.0;                            // yarn: rotations over the old context, above which f_i is kept
  double beta_slow = 1.0;                             // yarn: … below which f_i is divided by factor
  bool truncate = true;                               // yarn: ramp bounds rounded outwards to whole dimensions
  std::optional<double> attention_factor = std::nullopt;  // yarn, longrope: replaces attention_scaling()'s formula
  std::optional<double> mscale = std::nullopt;            // yarn: mscale and mscale_all_dim count only together
  std::optional<double> mscale_all_dim = std::nullopt;
  std::vector<double> short_factor = {};  // longrope: for contexts up to the original one, [rotary_dim / 2]
  std::vector<double> long_factor = {};   // longrope: for longer contexts
  // The numbers of rotated pairs that turn by time, by height and by width, for tokens with positions in three
  // dimensions (M-RoPE). ops/rows/rotary.h says which pairs. Empty: all pairs turn by one position.
  std::vector<std::int64_t> sections = {};
  bool interleaved_sections = false;

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Facts of the rest of the config on which the rotation depends.
struct RopeContext {
  std::int64_t max_position_embeddings = 0;
  std::int64_t head_dim = 0;
  bool partial_rotary = false;  // whether the architecture may rotate a part of each head
  double default_part = 1.0;    // default of partial_rotary_factor
  bool sections = false;        // whether tokens of the architecture have positions in three dimensions
};

// Reads `rope_parameters` (new spelling) or `rope_theta` and `rope_scaling` (old) from the members of config.json.
// invalid_argument for wrong values; unimplemented for other variants (dynamic, and mrope if the context has no
// sections). `file` names the source in messages.
Result<RopeConfig> read_rope_config(const Json& config, const std::string& file, const RopeContext& context);

// Returns the number of rotated dimensions of each head, from its first on, which is even. For proportional it is the
// whole head.
std::int64_t rotary_dim(const RopeConfig& rope, std::int64_t head_dim);

// Returns [rotary_dim / 2] angles per position, for dimension pairs (i, i + rotary_dim / 2). They are computed in
// float32 in the order in which transformers computes them, so that the results agree to the last bit or two: at
// position 100 000 a relative error of 1e-6 would turn the first pair by 0.1 rad. `context_length`, which only longrope
// reads, is the longest sequence to be run. If it is above the original context, the long factors are used for all
// positions, because a row's rotation must not depend on how long its text will become. 0: the original context.
// Precondition: head_dim even and > 0.
std::vector<float> compute_inv_freq(const RopeConfig& rope, std::int64_t head_dim, std::int64_t context_length = 0);

// Returns the factor of cos and sin: 1 except for yarn and longrope.
float attention_scaling(const RopeConfig& rope);

}  // namespace tessera
