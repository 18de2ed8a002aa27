// Reads the image settings in a model's preprocessor_config.json.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

// The settings of Hugging Face's Qwen2VLImageProcessor, with the same defaults (transformers 5.17).
struct ImageProcessorConfig {
  std::int32_t patch_size = 14;              // side of a patch in pixels
  std::int32_t temporal_patch_size = 2;      // frames per patch; a still image fills all frames
  std::int32_t merge_size = 2;               // the tower merges merge_size × merge_size patches into a token
  std::int64_t min_pixels = 56 * 56;         // images are resized to at least this many pixels
  std::int64_t max_pixels = 28 * 28 * 1280;  // images are resized to at most this many pixels
  double rescale_factor = 1.0 / 255;         // the values 0 … 255 are multiplied by this factor
  // The numbers that are subtracted from red, green and blue after rescaling.
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};
  // The numbers by which red, green and blue are divided after the mean is subtracted.
  std::array<double, 3> std_deviation{0.26862954, 0.26130258, 0.27577711};

  // Returns the side of a token in pixels. Both sides of a resized image are multiples of this number.
  std::int32_t side_unit() const { return patch_size * merge_size; }
  // Returns the number of values in a patch: colours × frames × height × width.
  std::int64_t patch_values() const { return std::int64_t{3} * temporal_patch_size * patch_size * patch_size; }
};

// Returns the settings of a family's published models, for checkpoints without preprocessor_config.json. `model_type`
// is the field "model_type" of config.json ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5" and their
// mixture-of-experts variants). For any other type, returns the defaults above.
ImageProcessorConfig default_processor_config(std::string_view model_type);

// Parses the settings. Missing fields have the defaults above, as in transformers. Both the old names (min_pixels,
// max_pixels) and the new names (size.shortest_edge, size.longest_edge) are read. `what` names the source in errors.
// Returns invalid_argument for an impossible value, and for a processor that works differently, for example without
// resizing or with another filter than bicubic.
Result<ImageProcessorConfig> parse_processor_config(const Json& json, std::string_view what);
// Reads and parses the file. Returns not_found if it does not exist; otherwise the errors of parse_processor_config().
Result<ImageProcessorConfig> read_processor_config(const std::filesystem::path& preprocessor_config_json);

}  // namespace tessera
