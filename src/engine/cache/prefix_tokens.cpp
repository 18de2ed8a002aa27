#include "tessera/engine/cache/prefix_tokens.h"

#include <algorithm>

namespace tessera {

std::int64_t common_prefix(const PrefixTokens& a, const PrefixTokens& b) {
  if (a.adapter != b.adapter) return 0;
  std::int64_t common = std::ranges::mismatch(a.ids, b.ids).in1 - a.ids.begin();
  // Tokens of different images are never equal, although their ids are. A token of an image and a token of text with
  // the same id are not equal either.
  const auto [in_a, in_b] = std::ranges::mismatch(a.images, b.images);
  if (in_a != a.images.end()) common = std::min(common, in_a->first_token);
  if (in_b != b.images.end()) common = std::min(common, in_b->first_token);
  return common;
}

std::vector<PageImage> images_within(std::span<const ImageSpan> images, std::int64_t first, std::int64_t count) {
  std::vector<PageImage> within;
  auto image = std::ranges::upper_bound(images, first, {}, &ImageSpan::end);
  for (; image != images.end() && image->first_token < first + count; ++image) {
    const std::int64_t begin = std::max(image->first_token, first);
    within.push_back({.at = begin - first,
                      .count = std::min(image->end(), first + count) - begin,
                      .index = begin - image->first_token,
                      .content = image->content});
  }
  return within;
}

}  // namespace tessera
