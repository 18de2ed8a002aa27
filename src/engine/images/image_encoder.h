// What makes rows of images for an engine: its vision tower, or what stands in its place.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/image/patches.h"
#include "tessera/runner/vision/tower_use.h"

namespace tessera {

// On the engine's thread.
class ImageEncoder {
 public:
  virtual ~ImageEncoder() = default;

  // kInvalidArgument, with the limit, for an image that encode() would refuse.
  virtual Status check(const Patches& image) const = 0;

  // Writes each image's rows, patches->tokens() of them from first_rows[i] on, to `rows`: the memory of row 0, whose
  // rows are ModelConfig::embedding_row_values() values of the activations' type. Work is enqueued on `stream`; the
  // patches have been read when it returns.
  virtual Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                        DeviceAddress rows, Stream& stream) = 0;

  // How the forwards of the last encode() ran, in the order of its images; none of an encoder that has no graphs. Until
  // the next call.
  virtual std::span<const TowerForward> last_forwards() const { return {}; }
};

}  // namespace tessera
