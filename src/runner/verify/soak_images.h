// The images of soak(): which lie in the rows of embeddings, and whether the tower makes them right.
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
  std::int64_t encoded = 0;         // images
  std::int64_t cache_hits = 0;      // images that were there, and were looked at again
  std::int64_t graph_forwards = 0;  // of the tower, as it chose
  std::int64_t eager_forwards = 0;
  double greatest_difference = 0;  // of images alone against the forward that they were packed into
};

// Each image is computed three times: alone and eagerly, packed with others in its budget with operators one by one,
// and as the tower chooses. The last two are equal to the bit. Rows of an image stay while a sequence has it, and are
// looked at again: nothing else may write them.
class SoakImages {
 public:
  // Takes rows first_row … first_row + rows - 1 of the runner's embeddings, which have memory. Precondition: the runner
  // has a tower.
  SoakImages(ModelRunner& runner, std::int64_t first_row, std::int64_t rows, double tolerance);

  // What sequences may have; addresses stay.
  std::vector<SoakImage>& gallery() { return gallery_; }
  // Some images come, new ones and known ones. The text of a difference; empty: there is none.
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
  std::vector<SoakImage> gallery_;        // [slots]
  std::vector<Patches> images_;           // [slots]
  std::vector<std::vector<float>> rows_;  // [slots]: what the tower wrote
  SoakImageReport report_;
};

}  // namespace tessera
