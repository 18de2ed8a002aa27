// Pixels become what a vision tower takes: resized to whole tokens, normalised and cut into patches.
//
// The result matches transformers 5.17's Qwen2VLImageProcessor in its default variant, which resizes with torchvision:
// on bytes, with weights of 16 bits, as PyTorch does it on a CPU with AVX2. The PIL variant (Qwen2VLImageProcessorPil)
// rounds otherwise and differs by 1/255 in some pixels. Values are equal to the last bit, in order too.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/status.h"
#include "tessera/image/image.h"
#include "tessera/image/processor_config.h"

namespace tessera {

// An image in patches: Hugging Face's image_grid_thw.
struct PatchGrid {
  std::int32_t t = 1;  // of frames; 1 for an image
  std::int32_t h = 0;  // of rows
  std::int32_t w = 0;  // of columns

  std::int64_t patches() const { return std::int64_t{t} * h * w; }
  // What the tower gives the language model: merge × merge patches become one token.
  std::int64_t tokens(std::int32_t merge_size) const { return patches() / (std::int64_t{merge_size} * merge_size); }
  friend bool operator==(const PatchGrid&, const PatchGrid&) = default;
};

// An image as a tower takes it: Hugging Face's pixel_values of one image.
struct Patches {
  PatchGrid grid;
  std::int32_t merge_size = 0;
  std::int64_t patch_values = 0;
  // [grid.patches(), patch_values]. Patches come in blocks of merge × merge, blocks by rows, and by rows within a
  // block: the patches of token i are rows i · merge² on. A patch's values: [3 colours, temporal_patch_size frames,
  // height, width].
  std::vector<float> values{};
  // The hash of the resized pixels, the grid and all that was done to them: equal content gives equal `values`. Caches
  // use it as the key.
  Hash128 content{};

  std::int64_t tokens() const { return grid.tokens(merge_size); }
};

// The grid of an image of this size: counts its tokens without its pixels ("smart resize": sides to the nearest
// multiple of side_unit(), scaled where that is not within min_pixels … max_pixels). Errors: invalid_argument for a
// side below 1 and for a ratio of the sides above 200.
Result<PatchGrid> patch_grid(std::int32_t width, std::int32_t height, const ImageProcessorConfig& config);

// Takes 4 · temporal_patch_size · 3 bytes for each resized pixel. Errors: those of patch_grid; invalid_argument where
// image.rgb has another size than width × height. Thread-safe, on the calling thread alone.
Result<Patches> make_patches(const Image& image, const ImageProcessorConfig& config);

}  // namespace tessera
