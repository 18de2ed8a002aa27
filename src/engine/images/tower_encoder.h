// Uses the model's own vision tower as an engine's image encoder.
#pragma once

#include "tessera/engine/images/image_encoder.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

class TowerEncoder final : public ImageEncoder {
 public:
  // `tower` must outlive the encoder and work on the stream that encode() gets.
  explicit TowerEncoder(VisionRunner& tower) : tower_(tower) {}

  Status check(const Patches& image) const override { return tower_.check(image); }

  Status encode(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows, DeviceAddress rows,
                Stream&) override {
    return tower_.encode(images, first_rows, rows);
  }

  std::span<const TowerForward> last_forwards() const override { return tower_.last_forwards(); }

 private:
  VisionRunner& tower_;
};

}  // namespace tessera
