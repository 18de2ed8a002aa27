// Images of prompts: checks them, gives them rows on the device and positions, and calls the tower.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/engine/engine.h"
#include "tessera/image/patches.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/ranks/rank_group.h"

namespace tessera {
namespace {

// Returns the image's token grid, row by row.
TokenGrid grid_of(const PromptImage& image) {
  const Patches& patches = *image.patches;
  return {.first_token = image.first_token,
          .rows = patches.grid.h / patches.merge_size,
          .columns = patches.grid.w / patches.merge_size};
}

// Positions are defined for one frame only. The encoder checks everything else about a grid.
Status check_frames(std::size_t index, const PatchGrid& grid) {
  if (grid.t == 1) return ok_status();
  return invalid_argument(
      fmt::format("image {} has {} frames of {} × {} patches; accepted is one", index, grid.t, grid.h, grid.w));
}

}  // namespace

// Checks that each image has its own placeholders and each placeholder an image. A prompt without images may use their
// id.
Status Engine::check_images(const Request& request) const {
  if (request.images.empty()) return ok_status();
  if (!config_.images) {
    return invalid_argument(fmt::format("{} is given, and {} takes none: it is a model of text alone",
                                        request.images.size() == 1 ? "an image" : "images", config_.architecture));
  }
  if (encoder_ == nullptr) return unimplemented("images are given, and the model was loaded without its vision tower");
  std::int64_t next = 0;  // index of the token
  const auto is_placeholder = [&](std::int64_t token) {
    return request.prompt[static_cast<std::size_t>(token)] == config_.images->image;
  };
  const auto check_text = [&](std::int64_t end) -> Status {
    for (; next < end; ++next) {
      if (!is_placeholder(next)) continue;
      return invalid_argument(
          fmt::format("prompt token {} stands for an image (id {}), and none of the {} images is "
                      "there",
                      next, config_.images->image.value(), request.images.size()));
    }
    return ok_status();
  };
  for (std::size_t i = 0; i < request.images.size(); ++i) {
    const PromptImage& image = request.images[i];
    if (image.patches == nullptr) return internal_error(fmt::format("image {} has no patches", i));
    TRY(encoder_->check(*image.patches).with_context(fmt::format("image {}", i)));
    TRY(check_frames(i, image.patches->grid));
    const std::int64_t end = image.first_token + image.patches->tokens();
    if (image.first_token < next || end > std::ssize(request.prompt)) {
      return invalid_argument(fmt::format("image {} takes prompt tokens {} to {}; accepted is a place within {} to {}",
                                          i, image.first_token, end - 1, next, std::ssize(request.prompt) - 1));
    }
    TRY(check_text(image.first_token));
    for (; next < end; ++next) {
      if (is_placeholder(next)) continue;
      return invalid_argument(fmt::format("prompt token {} has id {}, where image {} of {} tokens needs the id {}",
                                          next, request.prompt[static_cast<std::size_t>(next)].value(), i,
                                          image.patches->tokens(), config_.images->image.value()));
    }
  }
  return check_text(std::ssize(request.prompt));
}

// Rows of given embeddings are as long as those of images, which carry more values; the additional values are zero.
void Engine::widen_embeddings(Request& request) const {
  const auto from = static_cast<std::size_t>(config_.hidden_size);
  const auto to = static_cast<std::size_t>(config_.embedding_row_values());
  if (from == to || request.input_embeds.empty()) return;
  std::vector<float> wide(request.prompt.size() * to);
  for (std::size_t row = 0; row < request.prompt.size(); ++row)
    std::copy_n(request.input_embeds.begin() + static_cast<std::ptrdiff_t>(row * from), from,
                wide.begin() + static_cast<std::ptrdiff_t>(row * to));
  request.input_embeds = std::move(wide);
}

// Commits rows for the prompt's embeddings and for the prompts that a forward can compute together, or for the largest
// image.
Status Engine::reserve_embeddings(const Request& request) {
  std::int64_t rows = 0;
  if (!request.input_embeds.empty()) rows = std::max(std::ssize(request.prompt), runner_->options().max_tokens);
  for (const PromptImage& image : request.images) rows = std::max(rows, image.patches->tokens());
  TRY(runner_->reserve_embeddings(rows).with_context(
      "memory for embeddings of the prompt, which a lower mem_fraction_static would leave"));
  scheduler_->grow_embeddings(runner_->embedding_rows());
  return ok_status();
}

void Engine::add_images(Sequence& sequence) const {
  std::vector<TokenGrid> grids;
  for (const PromptImage& image : sequence.request.images) {
    grids.push_back(grid_of(image));
    sequence.images.push_back(
        {.first_token = image.first_token, .count = image.patches->tokens(), .content = image.patches->content});
  }
  sequence.image_rows.resize(sequence.images.size());
  if (!grids.empty()) sequence.rope.emplace(grids);
  if (!sequence.request.return_images || !config_.images) return;
  sequence.result.image_rows.resize(sequence.images.size());
  RopeAxes axes;
  RopePositions(grids).append(0, sequence.prompt_tokens(), axes);
  for (const std::vector<std::int32_t>& axis : axes)
    sequence.result.rope_positions.insert(sequence.result.rope_positions.end(), axis.begin(), axis.end());
}

Status Engine::encode_images(const ScheduledBatch& batch) {
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
  const auto began = std::chrono::steady_clock::now();
  const auto encode = [&] {
    return encoder_->encode(images, first_rows, runner_->embeddings_base(), runner_->stream());
  };
  TRY((ranks_ == nullptr ? encode() : ranks_->encode_images(images, first_rows, encode)).with_context("vision tower"));
  tower_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  encoded_images_ += std::ssize(images);
  note_tower_forwards(sequences, images);
  return ok_status();
}

// Image i belongs to sequences[i]. A forward counts once for each request with images in it.
void Engine::note_tower_forwards(std::span<Sequence* const> sequences, std::span<const Patches* const> images) {
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

// Waits for the forward; used for scores and tests.
Status Engine::return_images(const ScheduledBatch& batch) {
  const std::int64_t row_bytes = runner_->embedding_row_bytes();
  std::vector<std::byte> bytes;
  for (const ScheduledBatch::ImageUse& use : batch.images) {
    if (!use.sequence->request.return_images) continue;
    const std::int64_t rows = use.sequence->images[use.image].count;
    bytes.resize(static_cast<std::size_t>(rows * row_bytes));
    Stream& stream = runner_->stream();
    TRY(stream.download(bytes.data(), runner_->embeddings_base() + static_cast<std::size_t>(use.first_row * row_bytes),
                        bytes.size()));
    TRY(stream.synchronize());
    std::vector<float>& to = use.sequence->result.image_rows[use.image];
    to.resize(static_cast<std::size_t>(rows * runner_->embedding_row_values()));
    TRY(widen_floats(bytes.data(), runner_->embedding_dtype(), to));
  }
  return ok_status();
}

}  // namespace tessera
