#include "tessera/image/orientation.h"

#include <cstdint>
#include <optional>
#include <utility>

namespace tessera {
namespace {

// Reads numbers of a TIFF block in the block's byte order. Returns nothing for numbers beyond the end of the block.
class TiffReader {
 public:
  TiffReader(std::span<const std::byte> bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  std::optional<std::uint32_t> number(std::size_t offset, std::size_t size) const {
    if (offset > bytes_.size() || bytes_.size() - offset < size) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t at = big_endian_ ? i : size - 1 - i;
      value = value << 8 | std::to_integer<std::uint32_t>(bytes_[offset + at]);
    }
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
  bool big_endian_;
};

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t kOrientationTag = 0x0112;
  constexpr std::uint32_t kShort = 3;
  constexpr std::size_t kEntryBytes = 12;
  if (tiff.size() < 8) return 1;
  const bool big_endian = tiff[0] == std::byte{'M'};
  const TiffReader reader(tiff, big_endian);
  const std::size_t directory = reader.number(4, 4).value_or(0);
  const std::uint32_t entries = reader.number(directory, 2).value_or(0);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + i * kEntryBytes;
    const auto tag = reader.number(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientationTag) continue;
    const std::uint32_t value = reader.number(entry + 8, 2).value_or(0);
    return reader.number(entry + 2, 2) == kShort && value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

Image oriented(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool exchanged = orientation >= 5;
  Image shown{exchanged ? image.height : image.width, exchanged ? image.width : image.height};
  shown.rgb.resize(image.rgb.size());
  // from_bottom is true if rows are shown from the bottom up, from_right if columns are shown from right to left. Both
  // apply before width and height are exchanged.
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const std::uint8_t* from = image.rgb.data();
  for (std::int32_t row = 0; row < image.height; ++row) {
    const std::int32_t y = from_bottom ? image.height - 1 - row : row;
    for (std::int32_t column = 0; column < image.width; ++column, from += 3) {
      const std::int32_t x = from_right ? image.width - 1 - column : column;
      const std::int64_t at = exchanged ? std::int64_t{x} * shown.width + y : std::int64_t{y} * shown.width + x;
      std::uint8_t* to = shown.rgb.data() + at * 3;
      to[0] = from[0];
      to[1] = from[1];
      to[2] = from[2];
    }
  }
  return shown;
}

}  // namespace tessera
