// Before a forward runs, makes the encoder write the embedding rows of the forward's images.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/base/status.h"
#include "tessera/engine/images/image_encoder.h"
#include "tessera/engine/report/fallback_watch.h"
#include "tessera/engine/schedule/scheduled_batch.h"
#include "tessera/engine/start/loaded_model.h"
#include "tessera/engine/stats/image_stats.h"

namespace tessera {

class ImageFeed {
 public:
  // Encodes with EngineOptions::image_encoder if it is set, else with the model's own tower. Both arguments must
  // outlive the feed.
  ImageFeed(LoadedModel& model, FallbackWatch& watch);

  // Returns the encoder, or null if the model takes no images.
  const ImageEncoder* encoder() const { return encoder_.get(); }

  // Enqueues the encoding of those images of the batch that have no embedding rows yet.
  Status encode(const ScheduledBatch& batch);
  // Copies the images' rows to the completions of requests with `return_images`. Waits for the forward if the batch has
  // such a request. Only `tessera score` and tests make such requests.
  Status read_back(const ScheduledBatch& batch);
  // Fills the encoder's part of the statistics.
  void report(ImageStats& stats) const;

 private:
  void note_forwards(std::span<Sequence* const> sequences, std::span<const Patches* const> images);

  LoadedModel& model_;
  FallbackWatch& watch_;
  std::shared_ptr<ImageEncoder> encoder_;
  std::int64_t encoded_ = 0;  // number of images encoded so far
  double seconds_ = 0;        // host seconds in the encoder's calls, which on a GPU only enqueue forwards
};

}  // namespace tessera
