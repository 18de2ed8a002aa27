// Converts pixels to the input of a vision tower. The image is resized so that its sides are whole numbers of tokens.
// It is then normalised and cut into patches.
//
// The result equals the output of Qwen2VLImageProcessor in transformers 5.17, to the last bit and in the same order.
// Qwen2VLImageProcessor is the default variant of the processor. It resizes bytes with torchvision, which uses 16-bit
// weights on a CPU with AVX2. The results of the PIL variant (Qwen2VLImageProcessorPil) differ by 1/255 in some pixels.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/status.h"
#include "tessera/image/image.h"
#include "tessera/image/processor_config.h"

namespace tessera {

// The size of an image in patches, which Hugging Face calls image_grid_thw.
struct PatchGrid {
  std::int32_t t = 1;  // frames; 1 for an image
  std::int32_t h = 0;  // rows of patches
  std::int32_t w = 0;  // columns of patches

  std::int64_t patches() const { return std::int64_t{t} * h * w; }
  // Returns the number of tokens for the language model. The tower merges merge_size × merge_size patches into a token.
  std::int64_t tokens(std::int32_t merge_size) const { return patches() / (std::int64_t{merge_size} * merge_size); }
  friend bool operator==(const PatchGrid&, const PatchGrid&) = default;
};

// The input of a tower for one image. Hugging Face calls the values pixel_values.
struct Patches {
  PatchGrid grid;
  std::int32_t merge_size = 0;
  std::int64_t patch_values = 0;
  // [grid.patches(), patch_values]. Patches are grouped into blocks of merge_size × merge_size. The order is row-major
  // over blocks and inside each block, so that the patches of a token are consecutive. The values of a patch are [3
  // colours, temporal_patch_size frames, height, width].
  std::vector<float> values{};
  // The hash of all that determines `values`: the resized pixels, their width and height, and the settings for patches
  // and colours. Equal hashes mean equal `values`, so caches use the hash as their key.
  Hash128 content{};

  std::int64_t tokens() const { return grid.tokens(merge_size); }
};

// Returns the grid of an image of this size. Needs no pixels. This is Hugging Face's "smart resize": each side is
// rounded to the nearest multiple of side_unit(), and both sides are scaled if the number of pixels is then outside
// min_pixels … max_pixels. Returns invalid_argument for a side below 1 or a ratio of the sides above 200.
Result<PatchGrid> patch_grid(std::int32_t width, std::int32_t height, const ImageProcessorConfig& config);

// Makes the patches, using only the calling thread. Thread-safe. The result takes 4 · temporal_patch_size · 3 bytes per
// resized pixel. Returns the errors of patch_grid(), and invalid_argument if the size of image.rgb is not width ×
// height × 3.
Result<Patches> make_patches(const Image& image, const ImageProcessorConfig& config);

}  // namespace tessera
