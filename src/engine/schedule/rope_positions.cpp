#include "tessera/engine/schedule/rope_positions.h"

#include <algorithm>

namespace tessera {

RopePositions::RopePositions(std::span<const TokenGrid> images) {
  segments_.push_back({.first_token = 0, .position = 0, .columns = 0});
  for (const TokenGrid& image : images) {
    const Segment& text = segments_.back();
    const std::int64_t position = text.position + image.first_token - text.first_token;
    segments_.push_back({.first_token = image.first_token, .position = position, .columns = image.columns});
    segments_.push_back({.first_token = image.first_token + image.rows * image.columns,
                         .position = position + std::max(image.rows, image.columns),
                         .columns = 0});
  }
}

void RopePositions::append(std::int64_t first, std::int64_t count, std::array<std::vector<std::int32_t>, 3>& to) const {
  // A token's segment is the last segment in the list that begins at or before the token. The list alternates between
  // text and images. If two images are adjacent, the text segment between them is empty and begins at the second
  // image's first token. The second image comes after it in the list, so the token gets the image's segment.
  auto next = std::ranges::upper_bound(segments_, first, {}, &Segment::first_token);
  for (std::int64_t token = first; token < first + count; ++token) {
    while (next != segments_.end() && next->first_token <= token) ++next;
    const Segment& segment = *(next - 1);
    const std::int64_t index = token - segment.first_token;
    const bool text = segment.columns == 0;
    const std::int64_t at[] = {text ? index : 0, text ? index : index / segment.columns,
                               text ? index : index % segment.columns};
    for (std::size_t axis = 0; axis < 3; ++axis)
      to[axis].push_back(static_cast<std::int32_t>(segment.position + at[axis]));
  }
}

}  // namespace tessera
