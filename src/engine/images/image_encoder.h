// An image encoder writes the embedding rows of images for an engine. It is the model's vision tower or a replacement.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/image/patches.h"
#include "tessera/runner/vision/tower_use.h"

namespace tessera {

// All functions are called on the engine's thread.
class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  // Returns kInvalidArgument for an image that encode() would refuse; the message names the limit.
  virtual Status check(const Patches& image) const = 0;

  // Writes the rows of the images. Row 0 is at the address `rows`. Image i has images[i]->tokens() rows, the first of
  // which is row first_rows[i]. A row has ModelConfig::embedding_row_values() values of the activations' type. The work
  // is enqueued on `stream`. The caller may reuse the patches after the return.
  virtual Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                        DeviceAddress rows, Stream& stream) = 0;

  // Returns how the forwards of the last encode() ran, in the order of that call's images. The span is empty for an
  // encoder without graphs, and valid until the next encode().
  virtual std::span<const TowerForward> last_forwards() const { return {}; }
};

}  // namespace tessera
