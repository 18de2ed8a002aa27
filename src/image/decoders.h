// Declares the decoders that decode_image() calls, one per format. Each decoder reads and checks the header, allocates
// memory and reads the pixels. Error messages begin with the format's name. All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/image/decode.h"
#include "tessera/image/image.h"

namespace tessera {

// The pixels as stored in the file, and the orientation that must be applied to them.
struct StoredImage {
  Image image;
  int orientation = 1;  // EXIF orientation, 1 … 8; 1 if the file has none
};

Result<StoredImage> decode_png(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_jpeg(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_webp(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_gif(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_bmp(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_tiff(std::span<const std::byte> file, const DecodeLimits& limits);
Result<StoredImage> decode_ppm(std::span<const std::byte> file, const DecodeLimits& limits);

// Checks that the size in an image's header is within `limits`, and calls limits.take_memory. `format` is "PNG",
// "JPEG", ….
Status check_image_size(std::string_view format, std::int64_t width, std::int64_t height, const DecodeLimits& limits);

// Returns the error "the <format> image cannot be read: <reason>".
Status unreadable_image(std::string_view format, std::string_view reason);

// Allocates the pixels of an image whose size was checked.
Image make_image(std::int32_t width, std::int32_t height);

inline const std::uint8_t* bytes_of(std::span<const std::byte> file) {
  return reinterpret_cast<const std::uint8_t*>(file.data());
}

}  // namespace tessera
