// Turns pixels into the input of a vision tower: resized to whole tokens, normalised, and cut into patches.
//
// The result equals that of transformers 5.17's Qwen2VLImageProcessor to the last bit, in the same order. That is the
// default variant, which resizes bytes by torchvision with 16-bit weights, like PyTorch on a CPU with AVX2. The PIL
// variant (Qwen2VLImageProcessorPil) rounds differently, by 1/255 in some pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/status.h"
#include "tessera/image/image.h"
#include "tessera/image/processor_config.h"

namespace tessera {

// The size of an image in patches: Hugging Face's image_grid_thw.
struct PatchGrid {
  std::int32_t t = 1;  // frames; 1 for an image
  std::int32_t h = 0;  // rows
  std::int32_t w = 0;  // columns

  std::int64_t patches() const { return std::int64_t{t} * h * w; }
  // Returns the number of tokens for the language model: the tower merges merge × merge patches into one.
  std::int64_t tokens(std::int32_t merge_size) const { return patches() / (std::int64_t{merge_size} * merge_size); }
  friend bool operator==(const PatchGrid&, const PatchGrid&) = default;
};

// The input of a tower for one image: Hugging Face's pixel_values.
struct Patches {
  PatchGrid grid;
  std::int32_t merge_size = 0;
  std::int64_t patch_values = 0;
  // [grid.patches(), patch_values]. Patches are grouped into merge × merge blocks, row-major over blocks and inside
  // each block, so token i has the merge² patches from i · merge² on. The values of a patch: [3 colours,
  // temporal_patch_size frames, height, width].
  std::vector<float> values{};
  // The hash of the resized pixels, the grid and all processing settings. Equal hashes mean equal `values`, so caches
  // use it as their key.
  Hash128 content{};

  std::int64_t tokens() const { return grid.tokens(merge_size); }
};

// Returns the grid of an image of this size, and so its number of tokens, without its pixels. This is "smart resize":
// each side is rounded to the nearest multiple of side_unit(), and both are scaled if the result is outside min_pixels
// … max_pixels. invalid_argument for a side below 1 or a ratio of the sides above 200.
Result<PatchGrid> patch_grid(std::int32_t width, std::int32_t height, const ImageProcessorConfig& config);

// Makes the patches, using only the calling thread. Thread-safe. Takes 4 · temporal_patch_size · 3 bytes per resized
// pixel. Errors: those of patch_grid; invalid_argument if the size of image.rgb is not width × height.
Result<Patches> make_patches(const Image& image, const ImageProcessorConfig& config);

}  // namespace tessera
