// The beginning of a text as the prefix cache knows it: ids, and which of them stand for images. An image's tokens all
// have the placeholder's id, so that they are told apart by what the image is.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/strong_id.h"

namespace tessera {

// The tokens of one image in a text.
struct ImageSpan {
  std::int64_t first_token = 0;
  std::int64_t count = 0;
  Hash128 content{};  // Patches::content: equal for equal pixels

  std::int64_t end() const { return first_token + count; }
  friend bool operator==(const ImageSpan&, const ImageSpan&) = default;
};

// Borrowed. Images in the order of their tokens; they may reach past the ids, as far as which they count.
struct PrefixTokens {
  std::span<const TokenId> ids;
  std::span<const ImageSpan> images;

  PrefixTokens() = default;
  template <class Ids>
  // NOLINTNEXTLINE(google-explicit-constructor): ids are a prefix without images
  requires std::convertible_to<const Ids&, std::span<const TokenId>> PrefixTokens(const Ids& text,
                                                                                  std::span<const ImageSpan> of = {})
      : ids(text), images(of) {}

  std::size_t size() const { return ids.size(); }
  bool empty() const { return ids.empty(); }
};

// How many tokens both begin with.
std::int64_t common_prefix(const PrefixTokens& a, const PrefixTokens& b);

// A page of tokens: what a node of the prefix cache is found by.
struct PageImage {
  std::int64_t at = 0;     // first token of it in the page
  std::int64_t count = 0;  // of its tokens in the page
  std::int64_t index = 0;  // of the first of these within the image
  Hash128 content{};
  friend auto operator<=>(const PageImage&, const PageImage&) = default;
};

// The images that have tokens among the `count` from `first` on.
std::vector<PageImage> images_within(std::span<const ImageSpan> images, std::int64_t first, std::int64_t count);

}  // namespace tessera
