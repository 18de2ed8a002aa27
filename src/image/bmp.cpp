// Decodes BMP without run-length encoding: palettes of 1, 4 and 8 bits, and colours of 16, 24 and 32 bits, with or
// without masks. https://learn.microsoft.com/en-us/windows/win32/gdi/bitmap-storage
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <vector>

#include "tessera/image/decoders.h"

namespace tessera {
namespace {

constexpr std::string_view kBmp = "BMP";
constexpr std::size_t kFileHeader = 14;
constexpr std::uint32_t kCoreHeader = 12;  // OS/2's header, with 16-bit sizes
constexpr std::uint32_t kInfoHeader = 40;  // later headers are longer but begin like this one
constexpr std::uint32_t kWithoutRuns = 0;
constexpr std::uint32_t kWithMasks = 3;

using Palette = std::vector<std::array<std::uint8_t, 3>>;

// Reads a little-endian number. Precondition: the bytes exist.
std::uint32_t word_at(std::span<const std::byte> file, std::size_t at, std::size_t bytes) {
  std::uint32_t word = 0;
  for (std::size_t i = bytes; i-- > 0;) word = word << 8 | std::to_integer<std::uint32_t>(file[at + i]);
  return word;
}

struct BmpHeader {
  std::uint32_t size = 0;
  std::int64_t width = 0;
  std::int64_t height = 0;
  bool top_down = false;
  std::uint32_t bits = 0;  // per pixel
  std::array<std::uint32_t, 3> masks{};
  std::size_t pixels = 0;  // offset of the pixels
  std::size_t stride = 0;  // number of bytes in a row, a multiple of 4
  Palette palette{};
};

Result<BmpHeader> read_sizes(std::span<const std::byte> file) {
  BmpHeader header;
  if (file.size() < kFileHeader + kCoreHeader) return unreadable_image(kBmp, "it is cut off");
  header.pixels = word_at(file, 10, 4);
  header.size = word_at(file, kFileHeader, 4);
  const bool core = header.size == kCoreHeader;
  if (!core && (header.size < kInfoHeader || header.size > 124))
    return unreadable_image(kBmp, fmt::format("its header has {} bytes; accepted are 12 and 40 to 124", header.size));
  if (file.size() < kFileHeader + header.size) return unreadable_image(kBmp, "it is cut off");
  if (core) {
    header.width = word_at(file, 18, 2);
    header.height = word_at(file, 20, 2);
    header.bits = word_at(file, 24, 2);
    return header;
  }
  header.width = static_cast<std::int32_t>(word_at(file, 18, 4));
  const std::int64_t height = static_cast<std::int32_t>(word_at(file, 22, 4));
  header.top_down = height < 0;
  header.height = std::abs(height);
  header.bits = word_at(file, 28, 2);
  return header;
}

// Reads the masks. A header of kInfoHeader bytes is followed by the masks. A longer header contains them. In both cases
// they are at the same offset in the file.
Status read_masks(std::span<const std::byte> file, BmpHeader& header) {
  const std::uint32_t compression = header.size == kCoreHeader ? kWithoutRuns : word_at(file, 30, 4);
  const bool masked = compression == kWithMasks && (header.bits == 16 || header.bits == 32);
  if (compression != kWithoutRuns && !masked)
    return unreadable_image(
        kBmp, fmt::format("its compression is number {} with {} bits; accepted are 0, and 3 with 16 or 32 bits",
                          compression, header.bits));
  header.masks = header.bits == 16 ? std::array<std::uint32_t, 3>{0x7c00, 0x3e0, 0x1f}
                                   : std::array<std::uint32_t, 3>{0xff0000, 0xff00, 0xff};
  if (!masked) return ok_status();
  constexpr std::size_t kMasks = kFileHeader + kInfoHeader;
  if (file.size() < kMasks + 12) return unreadable_image(kBmp, "it is cut off");
  for (std::size_t i = 0; i < 3; ++i) header.masks[i] = word_at(file, kMasks + 4 * i, 4);
  return ok_status();
}

Status read_palette(std::span<const std::byte> file, BmpHeader& header) {
  if (header.bits > 8) return ok_status();
  const std::size_t most = std::size_t{1} << header.bits;
  const bool core = header.size == kCoreHeader;
  std::size_t colours = core ? 0 : word_at(file, 46, 4);
  if (colours == 0) colours = most;
  const std::size_t bytes = core ? 3 : 4;
  const std::size_t begin = kFileHeader + header.size;
  if (colours > most || file.size() < begin + colours * bytes)
    return unreadable_image(kBmp, fmt::format("its palette of {} colours is not there", colours));
  for (std::size_t i = 0; i < colours; ++i) {
    const std::size_t at = begin + i * bytes;
    header.palette.push_back({std::to_integer<std::uint8_t>(file[at + 2]), std::to_integer<std::uint8_t>(file[at + 1]),
                              std::to_integer<std::uint8_t>(file[at])});
  }
  return ok_status();
}

// Returns the number in the bits that the mask selects, scaled to 0 … 255. Returns 0 if the mask is 0.
std::uint8_t masked_value(std::uint32_t word, std::uint32_t mask) {
  if (mask == 0) return 0;
  const int shift = std::countr_zero(mask);
  return static_cast<std::uint8_t>(std::uint64_t{(word & mask) >> shift} * 255 / (mask >> shift));
}

// Converts a row of the file to `rgb`. Returns false if a pixel's colour index is not in the palette.
bool read_row(const BmpHeader& header, std::span<const std::byte> row, std::uint8_t* rgb) {
  const auto width = static_cast<std::size_t>(header.width);
  for (std::size_t x = 0; x < width; ++x, rgb += 3) {
    if (header.bits > 8) {
      const std::size_t bytes = header.bits / 8;
      const std::uint32_t word = word_at(row, x * bytes, bytes);
      for (std::size_t c = 0; c < 3; ++c) rgb[c] = masked_value(word, header.masks[c]);
      continue;
    }
    const std::size_t bit = x * header.bits;
    const std::size_t shift = 8 - header.bits - bit % 8;
    const std::size_t index =
        std::to_integer<std::size_t>(row[bit / 8]) >> shift & ((std::size_t{1} << header.bits) - 1);
    if (index >= header.palette.size()) return false;
    std::ranges::copy(header.palette[index], rgb);
  }
  return true;
}

}  // namespace

Result<StoredImage> decode_bmp(std::span<const std::byte> file, const DecodeLimits& limits) {
  BmpHeader header = TRY(read_sizes(file));
  TRY(check_image_size(kBmp, header.width, header.height, limits));
  constexpr std::uint32_t kBits[] = {1, 4, 8, 16, 24, 32};
  if (std::ranges::find(kBits, header.bits) == std::end(kBits))
    return unreadable_image(kBmp,
                            fmt::format("its pixels have {} bits; accepted are 1, 4, 8, 16, 24 and 32", header.bits));
  TRY(read_masks(file, header));
  TRY(read_palette(file, header));
  header.stride = (static_cast<std::size_t>(header.width) * header.bits + 31) / 32 * 4;
  const std::size_t needed = header.stride * static_cast<std::size_t>(header.height);
  if (header.pixels > file.size() || file.size() - header.pixels < needed)
    return unreadable_image(kBmp, "it is cut off: its pixels are not all there");

  StoredImage stored{make_image(static_cast<std::int32_t>(header.width), static_cast<std::int32_t>(header.height))};
  const auto rows = static_cast<std::size_t>(header.height);
  for (std::size_t y = 0; y < rows; ++y) {
    const std::size_t from = header.top_down ? y : rows - 1 - y;
    std::uint8_t* rgb = &stored.image.rgb[y * static_cast<std::size_t>(header.width) * 3];
    if (!read_row(header, file.subspan(header.pixels + from * header.stride, header.stride), rgb))
      return unreadable_image(kBmp, "a pixel has a colour that its palette lacks");
  }
  return stored;
}

}  // namespace tessera
