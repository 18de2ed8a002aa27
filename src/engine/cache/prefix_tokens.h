// The beginning of a text as the prefix cache sees it: its ids, and which of them belong to images. All image tokens
// have the placeholder's id, so images are distinguished by their content.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/strong_id.h"

namespace tessera {

// The tokens of one image in a text.
struct ImageSpan {
  std::int64_t first_token = 0;
  std::int64_t count = 0;
  Hash128 content{};  // Patches::content, a hash that is equal for equal pixels

  std::int64_t end() const { return first_token + count; }
  friend bool operator==(const ImageSpan&, const ImageSpan&) = default;
};

// The ids and images are borrowed. Images are in the order of their tokens. If an image reaches past the last id, only
// its tokens up to the last id count.
struct PrefixTokens {
  std::span<const TokenId> ids;
  std::span<const ImageSpan> images;
  // The low-rank adapter that computed the keys: its ServedAdapter::number (0: none), which identifies it in this
  // engine, and its name and ServedAdapter::earlier_loads, which identify it in block_id().
  std::int64_t adapter = 0;
  std::string_view adapter_name;
  std::int64_t adapter_loads = 0;

  PrefixTokens() = default;
  template <class Ids>
  // NOLINTNEXTLINE(google-explicit-constructor): ids are a prefix without images
  requires std::convertible_to<const Ids&, std::span<const TokenId>> PrefixTokens(const Ids& text,
                                                                                  std::span<const ImageSpan> of = {},
                                                                                  std::int64_t with = 0)
      : ids(text), images(of), adapter(with) {}

  std::size_t size() const { return ids.size(); }
  bool empty() const { return ids.empty(); }
};

// Returns the number of equal tokens at the beginning of both texts. Texts with different adapters have none.
std::int64_t common_prefix(const PrefixTokens& a, const PrefixTokens& b);

// The part of an image that lies in one page. The prefix cache finds a node by the ids in its page and by these parts.
struct PageImage {
  std::int64_t at = 0;     // index of the part's first token within the page
  std::int64_t count = 0;  // number of the part's tokens
  std::int64_t index = 0;  // index of the part's first token within the image
  Hash128 content{};
  friend auto operator<=>(const PageImage&, const PageImage&) = default;
};

// Returns the parts of images that lie in the `count` tokens beginning at `first`.
std::vector<PageImage> images_within(std::span<const ImageSpan> images, std::int64_t first, std::int64_t count);

}  // namespace tessera
