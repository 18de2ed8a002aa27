#include "tessera/server/images/prompt_images.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {

std::int64_t count_placeholders(const ImageInput& input, std::span<const TokenId> prompt) {
  return std::count(prompt.begin(), prompt.end(), input.placeholder);
}

Status place_images(const ImageInput& input, const PreparedImages& images, std::vector<TokenId>& prompt,
                    std::vector<PromptImage>& placed) {
  const std::int64_t count = count_placeholders(input, prompt);
  std::int64_t tokens = 0;
  for (const std::shared_ptr<const Patches>& image : images) tokens += image->tokens();
  if (count != std::ssize(images) && count != tokens) {
    return invalid_argument(
        fmt::format("the prompt has {} placeholders of images (\"{}\", id {}) for {} images; "
                    "accepted: one for each image, or {}, one for each of their tokens",
                    count, input.placeholder_text, input.placeholder.value(), images.size(), tokens));
  }
  const bool placed_already = count == tokens;
  std::vector<TokenId> whole;
  whole.reserve(prompt.size() + static_cast<std::size_t>(tokens - (placed_already ? tokens : count)));
  std::size_t next = 0;   // index of the next image
  std::int64_t left = 0;  // placeholders of the current image that are still to come
  for (const TokenId id : prompt) {
    if (id != input.placeholder) {
      if (left > 0) {
        return invalid_argument(fmt::format("image {} lacks {} of the {} placeholders that its tokens need", next - 1,
                                            left, images[next - 1]->tokens()));
      }
      whole.push_back(id);
      continue;
    }
    if (left == 0) {
      placed.push_back({.first_token = std::ssize(whole), .patches = images[next]});
      left = images[next++]->tokens();
      if (!placed_already) {
        whole.insert(whole.end(), static_cast<std::size_t>(left), id);
        left = 0;
        continue;
      }
    }
    whole.push_back(id);
    --left;
  }
  prompt = std::move(whole);
  return ok_status();
}

std::int64_t image_tokens(std::span<const PromptImage> images) {
  std::int64_t tokens = 0;
  for (const PromptImage& image : images) tokens += image.patches->tokens();
  return tokens;
}

}  // namespace tessera
