#include "tessera/image/decode.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/image/decoders.h"
#include "tessera/image/orientation.h"

namespace tessera {
namespace {

using Decoder = Result<StoredImage> (*)(std::span<const std::byte>, const DecodeLimits&);

// Returns the decoder for a file. The file's first bytes determine the decoder. Returns null if no format fits.
Decoder decoder_of(std::string_view file) {
  if (file.starts_with("\x89PNG\r\n\x1a\n")) return decode_png;
  if (file.starts_with("\xff\xd8\xff")) return decode_jpeg;
  if (file.starts_with("RIFF") && file.substr(std::min<std::size_t>(8, file.size())).starts_with("WEBP")) {
    return decode_webp;
  }
  if (file.starts_with("P6")) return decode_ppm;
  if (file.starts_with("GIF87a") || file.starts_with("GIF89a")) return decode_gif;
  if (file.starts_with("BM")) return decode_bmp;
  // A TIFF begins with "II" if it is little-endian, or "MM" if it is big-endian. The next 16-bit number is 42 ('*'), or
  // 43 ('+') if the file has 64-bit offsets.
  for (const std::string_view mark : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                      std::string_view("II+\0", 4), std::string_view("MM\0+", 4)})
    if (file.starts_with(mark)) return decode_tiff;
  return nullptr;
}

}  // namespace

Status check_image_size(std::string_view format, std::int64_t width, std::int64_t height, const DecodeLimits& limits) {
  const std::int64_t longer = std::max(width, height);
  const std::int64_t shorter = std::min(width, height);
  if (shorter < 1 || longer > limits.most_side) {
    return invalid_argument(fmt::format("the {} image has {} × {} pixels; accepted are sides of 1 to {} pixels", format,
                                        width, height, limits.most_side));
  }
  if (width * height > limits.most_pixels) {
    return invalid_argument(fmt::format("the {} image has {} × {} = {} pixels; accepted are at most {}", format, width,
                                        height, width * height, limits.most_pixels));
  }
  if (static_cast<double>(longer) > limits.most_ratio * static_cast<double>(shorter)) {
    return invalid_argument(
        fmt::format("the {} image has {} × {} pixels; accepted is a ratio of the sides of at most {}", format, width,
                    height, limits.most_ratio));
  }
  if (limits.take_memory == nullptr) return ok_status();
  // The image takes 3 bytes per pixel. A second copy of 3 bytes per pixel exists while the EXIF orientation is applied.
  // While the file is decoded, a progressive JPEG takes up to 9 more bytes per pixel for its coefficients, and libwebp
  // up to 4 more bytes per pixel. For a TIFF, decode_tiff() later reads the size of the strips or tiles, and calls
  // take_memory again with the number of bytes that libtiff needs.
  const std::int64_t bytes_of_pixel = format == "JPEG" ? 12 : 8;
  return (*limits.take_memory)(width * height * bytes_of_pixel);
}

Status unreadable_image(std::string_view format, std::string_view reason) {
  return invalid_argument(fmt::format("the {} image cannot be read: {}", format, reason));
}

Image make_image(std::int32_t width, std::int32_t height) {
  Image image{width, height};
  image.rgb.resize(static_cast<std::size_t>(image.pixels()) * 3);
  return image;
}

Result<Image> decode_image(std::span<const std::byte> file, const DecodeLimits& limits) {
  if (static_cast<std::int64_t>(file.size()) > limits.most_bytes) {
    return invalid_argument(
        fmt::format("the image file has {} bytes; accepted are at most {}", file.size(), limits.most_bytes));
  }
  const Decoder decode = decoder_of({reinterpret_cast<const char*>(file.data()), file.size()});
  if (decode == nullptr) {
    return invalid_argument(fmt::format(
        "these {} bytes are no image; accepted are PNG, JPEG, WebP, GIF, BMP, TIFF and binary PPM (P6)", file.size()));
  }
  StoredImage stored = TRY(decode(file, limits));
  return oriented(std::move(stored.image), stored.orientation);
}

}  // namespace tessera
