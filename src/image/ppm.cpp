// Decodes binary PPM. A file has "P6", then width, height and 255 in decimal, all separated by white space, then one
// white-space character and the pixels. A comment runs from # to the end of its line.
// https://netpbm.sourceforge.net/doc/ppm.html
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/image/decoders.h"

namespace tessera {
namespace {

constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Removes the next number from the front of `text` and returns it. Returns -1 if there is no number or if it has more
// than nine digits.
std::int64_t take_number(std::string_view& text) {
  while (!text.empty() && (is_space(text.front()) || text.front() == '#')) {
    text.remove_prefix(text.front() == '#' ? std::min(text.find('\n'), text.size()) : 1);
  }
  constexpr std::size_t kMostDigits = 9;
  std::int64_t number = 0;
  std::size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    if (digits == kMostDigits) return -1;
    number = number * 10 + (text[digits] - '0');
  }
  text.remove_prefix(digits);
  return digits == 0 ? -1 : number;
}

}  // namespace

Result<StoredImage> decode_ppm(std::span<const std::byte> file, const DecodeLimits& limits) {
  constexpr std::string_view kFormat = "PPM";
  std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  text.remove_prefix(std::string_view("P6").size());
  const std::int64_t width = take_number(text);
  const std::int64_t height = take_number(text);
  const std::int64_t greatest = take_number(text);
  if (width < 0 || height < 0 || greatest < 0 || text.empty() || !is_space(text.front())) {
    return unreadable_image(kFormat, "its header is not \"P6 WIDTH HEIGHT 255\" and a white space");
  }
  text.remove_prefix(1);
  TRY(check_image_size(kFormat, width, height, limits));
  if (greatest != 255) {
    return unreadable_image(kFormat, fmt::format("its greatest value is {}; accepted is 255", greatest));
  }
  const std::size_t size = static_cast<std::size_t>(width * height) * 3;
  if (text.size() < size) {
    return unreadable_image(kFormat, fmt::format("it is cut off: {} bytes of pixels of {}", text.size(), size));
  }
  StoredImage stored{make_image(static_cast<std::int32_t>(width), static_cast<std::int32_t>(height))};
  std::copy_n(text.begin(), size, stored.image.rgb.begin());
  return stored;
}

}  // namespace tessera
