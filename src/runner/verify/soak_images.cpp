#include "tessera/runner/verify/soak_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tessera/runner/host_floats.h"
#include "tessera/runner/verify/soak_difference.h"

namespace tessera {
namespace {

constexpr std::int64_t kSlots = 6;
constexpr std::int64_t kMostTokens = 512;  // maximum number of tokens in one image

bool same_rows(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace

SoakImages::SoakImages(ModelRunner& runner, std::int64_t first_row, std::int64_t rows, double tolerance)
    : runner_(runner), tower_(*runner.vision()), tolerance_(tolerance) {
  const std::int64_t most = tower_.options().max_patches / tower_.config().merged_patches();
  const std::int64_t slots = std::min(kSlots, rows);
  slot_rows_ = slots == 0 ? 0 : std::min({rows / slots, most, kMostTokens});
  for (std::int64_t slot = 0; slot < slots; ++slot) gallery_.push_back({.first_row = first_row + slot * slot_rows_});
  images_.resize(gallery_.size());
  rows_.resize(gallery_.size());
}

Result<std::string> SoakImages::next(SoakWorld& world) {
  if (gallery_.empty() || !world.chance(0.25)) return std::string();
  std::vector<std::size_t> coming;
  const std::int64_t count = 1 + world.draw(4);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto slot = static_cast<std::size_t>(world.draw(std::ssize(gallery_)));
    if (std::ranges::find(coming, slot) != coming.end()) continue;
    const bool is_new = gallery_[slot].tokens == 0 || (gallery_[slot].users == 0 && world.chance(0.7));
    if (!is_new) {
      std::string differs = TRY(check_kept(slot));
      if (!differs.empty()) return differs;
      continue;
    }
    images_[slot] = draw_image(world);
    gallery_[slot].tokens = images_[slot].tokens();
    coming.push_back(slot);
  }
  return coming.empty() ? std::string() : encode(coming);
}

// Makes a random image of log-uniform size and any aspect ratio, with small values like those of pixels.
Patches SoakImages::draw_image(SoakWorld& world) const {
  const VisionConfig& config = tower_.config();
  const std::int64_t tokens = world.log_uniform(slot_rows_);
  const std::int64_t rows = 1 + world.draw(static_cast<std::int64_t>(std::sqrt(static_cast<double>(tokens))));
  const std::int64_t columns = tokens / rows;
  Patches image{.grid = {.t = 1,
                         .h = static_cast<std::int32_t>(rows * config.merge_size),
                         .w = static_cast<std::int32_t>(columns * config.merge_size)},
                .merge_size = static_cast<std::int32_t>(config.merge_size),
                .patch_values = config.patch_values()};
  if (world.chance(0.5)) std::swap(image.grid.h, image.grid.w);
  image.values.resize(static_cast<std::size_t>(image.grid.patches() * image.patch_values));
  auto random = static_cast<std::uint32_t>(world.draw(INT32_MAX));
  for (float& value : image.values) {
    random = random * 1664525U + 1013904223U;
    value = static_cast<float>(random >> 8) * 0x1p-23F - 1;
  }
  return image;
}

Result<std::string> SoakImages::encode(const std::vector<std::size_t>& slots) {
  std::vector<const Patches*> images;
  for (const std::size_t slot : slots) images.push_back(&images_[slot]);
  std::span<const std::size_t> left = slots;
  while (!left.empty()) {
    const std::size_t count = tower_.num_packed(std::span(images).last(left.size()));
    std::string differs = TRY(encode_packed(left.first(count)));
    if (!differs.empty()) return differs;
    left = left.subspan(count);
  }
  return std::string();
}

Result<std::string> SoakImages::encode_packed(std::span<const std::size_t> slots) {
  std::vector<const Patches*> images;
  std::vector<std::int64_t> first_rows;
  std::int64_t patches = 0;
  for (const std::size_t slot : slots) {
    images.push_back(&images_[slot]);
    first_rows.push_back(gallery_[slot].first_row);
    patches += images_[slot].grid.patches();
  }
  std::vector<float> alone;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    TRY(tower_.encode(std::span(images).subspan(i, 1), std::span(first_rows).subspan(i, 1), runner_.embeddings_base(),
                      /*eagerly=*/true));
    const std::vector<float> rows = TRY(read(address_of(slots[i]), images[i]->tokens(), runner_.embedding_dtype()));
    alone.insert(alone.end(), rows.begin(), rows.end());
  }
  // In the next call the tower itself chooses size and graph. The call comes after the runs of single images, because
  // all these runs write the same embedding rows, and later batches must read the rows that this call writes.
  const VisionCounters before = tower_.counters();
  TRY(tower_.encode(images, first_rows, runner_.embeddings_base()));
  const std::int64_t size = patches + tower_.counters().padded_patches - before.padded_patches;
  report_.graph_forwards += tower_.counters().graph_forwards - before.graph_forwards;
  report_.eager_forwards += tower_.counters().eager_forwards - before.eager_forwards;
  report_.encoded += std::ssize(slots);
  std::vector<float> chosen;
  for (const std::size_t slot : slots) {
    rows_[slot] = TRY(read(address_of(slot), images_[slot].tokens(), runner_.embedding_dtype()));
    chosen.insert(chosen.end(), rows_[slot].begin(), rows_[slot].end());
  }
  TRY(tower_.stage(images, size));
  TRY(tower_.run(size, /*graph=*/false));
  const OutputView made = TRY(tower_.runner().executable().output(tower_.runner().bucket(size), 0));
  const std::vector<float> in_bucket = TRY(read(made.data, patches / tower_.config().merged_patches(), made.dtype));

  const auto told = [&](std::string_view what) {
    return fmt::format("{} of {} patches in a forward of {} ({}): {}", slots.size() == 1 ? "an image" : "images",
                       patches, size, vision_reason_name(tower_.last_reason()), what);
  };
  if (!same_rows(chosen, in_bucket)) return told("rows differ from those of the same operators without graph");
  const double apart = relative_difference(chosen, alone, tower_.row_values(), scale_);
  report_.greatest_difference = std::max(report_.greatest_difference, apart);
  if (!(apart <= tolerance_)) return told(fmt::format("rows differ from those of each image alone by {:.2g}", apart));
  return std::string();
}

Result<std::string> SoakImages::check_kept(std::size_t slot) {
  ++report_.cache_hits;
  const std::vector<float> now = TRY(read(address_of(slot), gallery_[slot].tokens, runner_.embedding_dtype()));
  return same_rows(now, rows_[slot]) ? std::string() : std::string("rows of an image that is kept were written over");
}

DeviceAddress SoakImages::address_of(std::size_t slot) const {
  return runner_.embeddings_base() + gallery_[slot].first_row * runner_.embedding_row_bytes();
}

Result<std::vector<float>> SoakImages::read(DeviceAddress from, std::int64_t rows, ir::DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(rows * tower_.row_values()));
  std::vector<std::byte> bytes(values.size() * ir::dtype_size(dtype));
  TRY(tower_.stream().download(bytes.data(), from, bytes.size()));
  TRY(tower_.stream().synchronize());
  TRY(widen_floats(bytes.data(), dtype, values));
  return values;
}

}  // namespace tessera
