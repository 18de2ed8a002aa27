// Assigns the images of soak() to embedding rows, and checks the results of the vision tower.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/image/patches.h"
#include "tessera/runner/model_runner.h"
#include "tessera/runner/verify/soak_world.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

struct SoakImageReport {
  std::int64_t encoded = 0;         // number of images
  std::int64_t cache_hits = 0;      // number of checks that the rows of a known image are unchanged
  std::int64_t graph_forwards = 0;  // forwards for which the tower chose a graph
  std::int64_t eager_forwards = 0;
  double greatest_difference = 0;  // between an image alone and in a forward with others
};

// Computes each image three times. The first forward is eager and has only this image. The second forward packs several
// images, and the tower chooses its size and graph. The third forward has the same images and the same size as the
// second, but uses no graph. The results of the second and third forwards must be bitwise equal. An image's rows stay
// at least as long as a sequence uses the image. Later calls of next() compare the image's rows with the results of the
// second forward. This finds kernels that wrongly write to these rows.
class SoakImages {
 public:
  // Uses rows first_row … first_row + rows - 1 of the runner's embeddings. Precondition: these rows have memory, and
  // the runner has a tower.
  SoakImages(ModelRunner& runner, std::int64_t first_row, std::int64_t rows, double tolerance);

  // Returns the images that sequences may use. Their addresses do not change.
  std::vector<SoakImage>& gallery() { return gallery_; }
  // In about a quarter of the calls, encodes a few new images or checks that the rows of known images are unchanged.
  // Returns a description of a difference, or an empty string if there is none.
  Result<std::string> next(SoakWorld& world);
  const SoakImageReport& report() const { return report_; }

 private:
  Patches draw_image(SoakWorld& world) const;
  Result<std::string> encode(const std::vector<std::size_t>& slots);
  Result<std::string> encode_packed(std::span<const std::size_t> slots);
  Result<std::string> check_kept(std::size_t slot);
  Result<std::vector<float>> read(DeviceAddress from, std::int64_t rows, ir::DType dtype);
  DeviceAddress address_of(std::size_t slot) const;

  ModelRunner& runner_;
  VisionRunner& tower_;
  std::int64_t slot_rows_ = 0;
  double tolerance_;
  double scale_ = 0;
  // A slot is a fixed range of slot_rows_ embedding rows that holds one image at a time. Each vector has an element for
  // each slot.
  std::vector<SoakImage> gallery_;
  std::vector<Patches> images_;           // the pixels of each slot's image
  std::vector<std::vector<float>> rows_;  // the rows that the tower wrote for each slot's image
  SoakImageReport report_;
};

}  // namespace tessera
