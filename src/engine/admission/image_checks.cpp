#include "tessera/engine/admission/image_checks.h"

#include <fmt/format.h>

#include <vector>

#include "tessera/image/patches.h"
#include "tessera/runner/memory/input_table.h"

namespace tessera {
namespace {

// Returns where the image's tokens are in the prompt, and how many rows and columns the tokens form, row by row.
TokenGrid grid_of(const PromptImage& image) {
  const Patches& patches = *image.patches;
  return {.first_token = image.first_token,
          .rows = patches.grid.h / patches.merge_size,
          .columns = patches.grid.w / patches.merge_size};
}

// Checks that an image has one frame, because positions are defined only for images of one frame. The encoder checks
// the rest of the grid.
Status check_frames(std::size_t index, const PatchGrid& grid) {
  if (grid.t == 1) return ok_status();
  return invalid_argument(
      fmt::format("image {} has {} frames of {} × {} patches; one frame is accepted", index, grid.t, grid.h, grid.w));
}

// Walks over a prompt from its first token and compares its placeholders with its images.
class PlaceholderCheck {
 public:
  PlaceholderCheck(const Request& request, TokenId placeholder) : request_(request), placeholder_(placeholder) {}

  // Checks that no token before `end` is a placeholder.
  Status check_text(std::int64_t end) {
    for (; next_ < end; ++next_) {
      if (id(next_) != placeholder_) continue;
      return invalid_argument(
          fmt::format("prompt token {} is a placeholder of images (id {}), but none of the {} images is there", next_,
                      placeholder_.value(), request_.images.size()));
    }
    return ok_status();
  }

  // Checks that image `i` begins after the images before it, and that all of its tokens are placeholders.
  Status check_image(std::size_t i) {
    const PromptImage& image = request_.images[i];
    const std::int64_t end = image.first_token + image.patches->tokens();
    if (image.first_token < next_ || end > std::ssize(request_.prompt)) {
      return invalid_argument(fmt::format("image {} takes prompt tokens {} to {}; accepted: a place within {} to {}", i,
                                          image.first_token, end - 1, next_, std::ssize(request_.prompt) - 1));
    }
    TRY(check_text(image.first_token));
    for (; next_ < end; ++next_) {
      if (id(next_) == placeholder_) continue;
      return invalid_argument(fmt::format("prompt token {} has id {}, where image {} of {} tokens needs the id {}",
                                          next_, id(next_).value(), i, image.patches->tokens(), placeholder_.value()));
    }
    return ok_status();
  }

 private:
  TokenId id(std::int64_t token) const { return request_.prompt[static_cast<std::size_t>(token)]; }

  const Request& request_;
  TokenId placeholder_;
  std::int64_t next_ = 0;  // index of the first token that was not checked
};

}  // namespace

Status check_images(const Request& request, const ModelConfig& config, const ImageEncoder* encoder) {
  if (request.images.empty()) return ok_status();
  if (!config.images) {
    return invalid_argument(fmt::format("{} is given, but {} takes none: it is a model of text alone",
                                        request.images.size() == 1 ? "an image" : "images", config.architecture));
  }
  if (encoder == nullptr) return unimplemented("images are given, but the model was loaded without its vision tower");
  PlaceholderCheck check(request, config.images->image);
  for (std::size_t i = 0; i < request.images.size(); ++i) {
    const PromptImage& image = request.images[i];
    if (image.patches == nullptr) return internal_error(fmt::format("image {} has no patches", i));
    TRY(encoder->check(*image.patches).with_context(fmt::format("image {}", i)));
    TRY(check_frames(i, image.patches->grid));
    TRY(check.check_image(i));
  }
  return check.check_text(std::ssize(request.prompt));
}

void place_images(const ModelConfig& config, Sequence& sequence) {
  std::vector<TokenGrid> grids;
  for (const PromptImage& image : sequence.request.images) {
    grids.push_back(grid_of(image));
    sequence.images.push_back(
        {.first_token = image.first_token, .count = image.patches->tokens(), .content = image.patches->content});
  }
  sequence.image_rows.resize(sequence.images.size());
  if (!grids.empty()) sequence.rope.emplace(grids);
  if (!sequence.request.return_images || !config.images) return;
  sequence.result.image_rows.resize(sequence.images.size());
  RopeAxes axes;
  RopePositions(grids).append(0, sequence.prompt_tokens(), axes);
  for (const std::vector<std::int32_t>& axis : axes)
    sequence.result.rope_positions.insert(sequence.result.rope_positions.end(), axis.begin(), axis.end());
}

}  // namespace tessera
