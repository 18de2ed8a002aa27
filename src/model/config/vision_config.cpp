#include "tessera/model/config/vision_config.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

using C = VisionConfig;

// The next two functions return the keys of the tower's hidden size and of its output size. Qwen2-VL's files differ
// from all others in both keys: their "hidden_size" is the output size, which equals the language model's hidden size.
const char* own_size_key(const VisionConfig& config) {
  return config.kind == C::Kind::kQwen2 ? "embed_dim" : "hidden_size";
}
const char* out_size_key(const VisionConfig& config) {
  return config.kind == C::Kind::kQwen2 ? "hidden_size" : "out_hidden_size";
}

// Reads the intermediate size of MLPs, which files give as a multiple of the hidden size. Rounds down like
// transformers.
Status read_mlp_ratio(const Fields& fields, VisionConfig& config) {
  constexpr double kDefaultRatio = 4;  // configuration_qwen2_vl.py
  const double ratio = TRY(fields.optional_number("mlp_ratio", 0, C::kMaxHiddenSize)).value_or(kDefaultRatio);
  const double inner = std::floor(static_cast<double>(config.hidden_size) * ratio);
  if (inner < 1 || inner > static_cast<double>(C::kMaxHiddenSize))
    return fields.wrong("mlp_ratio", fmt::format("a number that makes 1 to {} of embed_dim ({})", C::kMaxHiddenSize,
                                                 config.hidden_size));
  config.intermediate_size = static_cast<std::int64_t>(inner);
  return ok_status();
}

Status read_sizes(const Fields& fields, VisionConfig& config) {
  TRY(fields.read_size("depth", C::kMaxLayers, config.depth));
  TRY(fields.read_size(own_size_key(config), C::kMaxHiddenSize, config.hidden_size));
  if (config.kind == C::Kind::kQwen2) {
    TRY(read_mlp_ratio(fields, config));
  } else {
    TRY(fields.read_size("intermediate_size", C::kMaxHiddenSize, config.intermediate_size));
  }
  TRY(fields.read_size("num_heads", C::kMaxHiddenSize, config.num_heads));
  TRY(fields.read_size(out_size_key(config), C::kMaxHiddenSize, config.out_hidden_size));
  TRY(fields.read_size("patch_size", C::kMaxPatchSize, config.patch_size));
  TRY(fields.read_size("temporal_patch_size", C::kMaxPatchSize, config.temporal_patch_size));
  TRY(fields.read_size("spatial_merge_size", C::kMaxMergeSize, config.merge_size));
  // In the published files of Qwen2-VL and Qwen2.5-VL, the field in_channels has the name in_chans.
  const char* channels = fields.find("in_channels") == nullptr ? "in_chans" : "in_channels";
  config.in_channels = TRY(fields.optional_int(channels, 1, 16)).value_or(config.in_channels);
  if (config.in_channels != 3) return fields.unsupported(channels, "3");
  const std::int64_t head_dim = config.hidden_size / config.num_heads;
  if (config.hidden_size % config.num_heads != 0 || head_dim % 4 != 0 || head_dim > C::kMaxHeadDim)
    return fields.wrong("num_heads", fmt::format("a divisor of {} ({}) that makes heads of a multiple of 4 up to {} "
                                                 "values",
                                                 own_size_key(config), config.hidden_size, C::kMaxHeadDim));
  return ok_status();
}

Status read_activation(const Fields& fields, std::string_view accepted) {
  const std::optional<std::string> act = TRY(fields.optional_string("hidden_act"));
  if (act && *act != accepted) return fields.unsupported("hidden_act", accepted);
  return ok_status();
}

// Reads a list of block numbers, which must be in ascending order.
Result<std::vector<std::int64_t>> read_blocks(const Fields& fields, const char* key, std::int64_t depth) {
  const Json* list = fields.find(key);
  const std::string accepted = fmt::format("ascending numbers of blocks, from 0 to {}", depth - 1);
  if (list == nullptr || !list->is_array()) return fields.wrong(key, accepted);
  std::vector<std::int64_t> blocks;
  for (const Json& item : list->as_array()) {
    const std::int64_t least = blocks.empty() ? 0 : blocks.back() + 1;
    if (!item.is_int() || item.as_int() < least || item.as_int() >= depth) return fields.wrong(key, accepted);
    blocks.push_back(item.as_int());
  }
  return blocks;
}

Status read_windows(const Fields& fields, VisionConfig& config) {
  TRY(read_activation(fields, "silu"));
  TRY(fields.read_size("window_size", C::kMaxPositions, config.window_size));
  const std::int64_t unit = config.patch_size * config.merge_size;
  if (config.window_size < unit)
    return fields.wrong("window_size", fmt::format("at least the {} pixels of a token's side", unit));
  config.full_attention.assign(static_cast<std::size_t>(config.depth), false);
  for (const std::int64_t block : TRY(read_blocks(fields, "fullatt_block_indexes", config.depth)))
    config.full_attention[static_cast<std::size_t>(block)] = true;
  return ok_status();
}

Status read_positions(const Fields& fields, VisionConfig& config) {
  TRY(read_activation(fields, "gelu_pytorch_tanh"));
  const std::int64_t positions = TRY(fields.required_int("num_position_embeddings", 1, C::kMaxPositions));
  config.position_side = std::lround(std::sqrt(static_cast<double>(positions)));
  if (config.position_side * config.position_side != positions)
    return fields.wrong("num_position_embeddings", "a square number");
  if (fields.find("deepstack_visual_indexes") == nullptr &&
      (config.deepstack_blocks.empty() || config.deepstack_blocks.back() < config.depth))
    return ok_status();
  config.deepstack_blocks = TRY(read_blocks(fields, "deepstack_visual_indexes", config.depth));
  if (std::ssize(config.deepstack_blocks) > C::kMaxDeepstackLevels)
    return fields.unsupported("deepstack_visual_indexes", fmt::format("at most {} blocks", C::kMaxDeepstackLevels));
  return ok_status();
}

}  // namespace

Status read_vision_config(const Json& json, const std::string& file, std::int64_t text_hidden_size,
                          VisionConfig& config) {
  const Fields fields(json, file, "vision_config.");
  TRY(read_sizes(fields, config));
  if (config.out_hidden_size != text_hidden_size)
    return fields.wrong(out_size_key(config), fmt::format("the language model's hidden_size ({})", text_hidden_size));
  if (config.kind == C::Kind::kQwen2) return read_activation(fields, "quick_gelu");
  return config.kind == C::Kind::kQwen25 ? read_windows(fields, config) : read_positions(fields, config);
}

}  // namespace tessera
