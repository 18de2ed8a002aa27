#include "tessera/engine/steps/image_feed.h"

#include <chrono>
#include <vector>

#include "tessera/engine/images/tower_encoder.h"
#include "tessera/image/patches.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {

ImageFeed::ImageFeed(LoadedModel& model, FallbackWatch& watch)
    : model_(model), watch_(watch), encoder_(model.options.image_encoder) {
  VisionRunner* const tower = model.runner->vision();
  if (encoder_ == nullptr && tower != nullptr) encoder_ = std::make_shared<TowerEncoder>(*tower);
}

Status ImageFeed::encode(const ScheduledBatch& batch) {
  std::vector<const Patches*> images;
  std::vector<std::int64_t> first_rows;
  std::vector<Sequence*> sequences;
  for (const ScheduledBatch::ImageUse& use : batch.images) {
    if (use.is_written) continue;
    sequences.push_back(use.sequence);
    images.push_back(use.sequence->request.images[use.image].patches.get());
    first_rows.push_back(use.first_row);
  }
  if (images.empty()) return ok_status();
  ModelRunner& runner = *model_.runner;
  const auto began = std::chrono::steady_clock::now();
  const auto encode = [&] { return encoder_->encode(images, first_rows, runner.embeddings_base(), runner.stream()); };
  TRY(model_.peers->encode_images(images, first_rows, encode).with_context("vision tower"));
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  encoded_ += std::ssize(images);
  note_forwards(sequences, images);
  return ok_status();
}

// Reports each forward in encoder_->last_forwards() to watch_ once. If a request has `return_graph_info`, also adds to
// the request's result the forwards that encoded its images. images[i] belongs to sequences[i].
void ImageFeed::note_forwards(std::span<Sequence* const> sequences, std::span<const Patches* const> images) {
  std::size_t next = 0;
  for (const TowerForward& forward : encoder_->last_forwards()) {
    watch_.add_tower(forward.how.reason);
    const std::size_t end = next + forward.images;
    while (next < end) {
      Sequence& sequence = *sequences[next];
      std::size_t own = 0;
      std::int64_t patches = 0;
      for (; next < end && sequences[next] == &sequence; ++next, ++own) patches += images[next]->grid.patches();
      if (sequence.request.return_graph_info) sequence.result.tower_uses.add_of(forward, own, patches);
    }
  }
}

Status ImageFeed::read_back(const ScheduledBatch& batch) {
  ModelRunner& runner = *model_.runner;
  const std::int64_t row_bytes = runner.embedding_row_bytes();
  std::vector<std::byte> bytes;
  for (const ScheduledBatch::ImageUse& use : batch.images) {
    if (!use.sequence->request.return_images) continue;
    const std::int64_t rows = use.sequence->images[use.image].count;
    bytes.resize(static_cast<std::size_t>(rows * row_bytes));
    Stream& stream = runner.stream();
    TRY(stream.download(bytes.data(), runner.embeddings_base() + static_cast<std::size_t>(use.first_row * row_bytes),
                        bytes.size()));
    TRY(stream.synchronize());
    std::vector<float>& to = use.sequence->result.image_rows[use.image];
    to.resize(static_cast<std::size_t>(rows * runner.embedding_row_values()));
    TRY(widen_floats(bytes.data(), runner.embedding_dtype(), to));
  }
  return ok_status();
}

void ImageFeed::report(ImageStats& stats) const {
  stats.encoded = encoded_;
  stats.tower_seconds = seconds_;
  const VisionRunner* const tower = model_.runner->vision();
  if (tower == nullptr) return;
  stats.graph_hits = tower->counters().graph_forwards;
  stats.forwards = stats.graph_hits + tower->counters().eager_forwards;
  stats.by_reason = tower->counters().forwards;
}

}  // namespace tessera
