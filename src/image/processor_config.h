// What a model's preprocessor_config.json says of the images that it takes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The settings of Hugging Face's Qwen2VLImageProcessor, with its defaults (transformers 5.17).
struct ImageProcessorConfig {
  std::int32_t patch_size = 14;              // pixels of a patch's side
  std::int32_t temporal_patch_size = 2;      // frames of a patch; a still image is repeated
  std::int32_t merge_size = 2;               // the tower merges merge_size × merge_size patches to a token
  std::int64_t min_pixels = 56 * 56;         // images are resized to at least so many,
  std::int64_t max_pixels = 28 * 28 * 1280;  // and to at most so many
  double rescale_factor = 1.0 / 255;         // of the values 0 … 255
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};            // subtracted after that: red, green, blue
  std::array<double, 3> std_deviation{0.26862954, 0.26130258, 0.27577711};  // divided by after that

  // Both sides of a resized image are multiples of this: a token's side in pixels.
  std::int32_t side_unit() const { return patch_size * merge_size; }
  // Values of a patch: colours × frames × height × width.
  std::int64_t patch_values() const { return std::int64_t{3} * temporal_patch_size * patch_size * patch_size; }
};

// What a family's published models have, for a checkpoint without the file: `model_type` is config.json's
// ("qwen2_5_vl", "qwen3_vl", "qwen3_5" and their mixtures). Every other one gets the defaults above.
ImageProcessorConfig default_processor_config(std::string_view model_type);

// Fields that are missing have the defaults above, as in transformers. Old names (min_pixels, max_pixels) are read as
// well as new ones (size.shortest_edge, size.longest_edge). Errors: invalid_argument for a value that cannot be, and
// for a processor that does something else (no resizing, another filter than bicubic). `what` names the source in
// errors.
Result<ImageProcessorConfig> parse_processor_config(const Json& json, std::string_view what);
// Also: not_found where there is no such file.
Result<ImageProcessorConfig> read_processor_config(const std::filesystem::path& preprocessor_config_json);

}  // namespace tessera
