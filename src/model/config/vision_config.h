// Reads and checks "vision_config" in config.json. It describes a vision tower, which is a transformer that converts an
// image's patches to rows of the language model's embeddings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

struct VisionConfig {
  static constexpr std::int64_t kMaxLayers = 256;
  static constexpr std::int64_t kMaxHiddenSize = 1 << 16;
  static constexpr std::int64_t kMaxHeadDim = 128;  // the limit of the operator segment_attention
  static constexpr std::int64_t kMaxPositions = 1 << 20;
  static constexpr std::int64_t kMaxPatchSize = 256;  // pixels
  static constexpr std::int64_t kMaxMergeSize = 8;
  // The operator `join` takes at most eight operands: the embedding and up to seven levels.
  static constexpr std::int64_t kMaxDeepstackLevels = 7;

  enum class Kind : std::uint8_t {
    kQwen2,   // layer norms, plain MLPs; all blocks attend to the whole image (Qwen2-VL)
    kQwen25,  // RMS norms, gated MLPs; most blocks attend within windows
    kQwen3,   // layer norms, learned position embeddings, deepstack levels (Qwen3-VL and Qwen3.5)
  };

  Kind kind = Kind::kQwen25;
  std::string tensor_prefix = "visual.";  // prefix of the names of the tower's tensors
  std::int64_t depth = 0;                 // number of blocks
  std::int64_t hidden_size = 0;           // called "embed_dim" in kQwen2's files
  std::int64_t intermediate_size = 0;
  std::int64_t num_heads = 0;  // number of attention heads; divides hidden_size
  std::int64_t in_channels = 3;
  std::int64_t patch_size = 0;           // side of a patch in pixels
  std::int64_t temporal_patch_size = 2;  // number of frames in a patch
  std::int64_t merge_size = 2;           // merge_size × merge_size patches become one row of embeddings
  std::int64_t out_hidden_size = 0;      // the language model's hidden size; called "hidden_size" in kQwen2's files
  // Only for kQwen25: the side of an attention window in pixels, and a list [depth] that says whether each block
  // attends to the whole image.
  std::int64_t window_size = 0;
  std::vector<bool> full_attention = {};
  // Only for kQwen3: the side of the square table of learned position embeddings, and the blocks, in ascending order,
  // whose outputs become deepstack levels.
  std::int64_t position_side = 0;
  std::vector<std::int64_t> deepstack_blocks = {};
  double rope_theta = 10000;
  double norm_eps = 1e-6;

  std::int64_t head_dim() const { return hidden_size / num_heads; }  // a multiple of 4
  std::int64_t merged_patches() const { return merge_size * merge_size; }
  std::int64_t patch_values() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
  // Returns how many groups of merge_size × merge_size patches lie along a window's side. Precondition: kQwen25.
  std::int64_t window_units() const { return window_size / (patch_size * merge_size); }
  // Returns the number of values that the tower returns for each image token: those of the embedding, then those of
  // the deepstack levels.
  std::int64_t row_values() const { return (1 + static_cast<std::int64_t>(deepstack_blocks.size())) * out_hidden_size; }
};

// Reads the members of `json`, the "vision_config" of `file`. If a member is absent, `config` keeps the family's
// default.
Status read_vision_config(const Json& json, const std::string& file, std::int64_t text_hidden_size,
                          VisionConfig& config);

}  // namespace tessera
