// Decodes WebP with libwebp. The container format is described at
// https://developers.google.com/speed/webp/docs/riff_container
#include <fmt/format.h>
#include <webp/decode.h>

#include <algorithm>
#include <string_view>

#include "tessera/image/decoders.h"
#include "tessera/image/orientation.h"

namespace tessera {
namespace {

constexpr std::string_view kWebp = "WebP";

// Returns the content of the first chunk with this name. Returns nothing if the file has no such chunk.
std::span<const std::byte> find_chunk(std::span<const std::byte> file, std::string_view name) {
  constexpr std::size_t kHeader = 12;  // "RIFF", size, "WEBP"
  constexpr std::size_t kChunkHeader = 8;
  if (file.size() < kHeader) return {};
  file = file.subspan(kHeader);
  while (file.size() >= kChunkHeader) {
    std::size_t size = 0;
    for (std::size_t i = 8; i-- > 4;) size = size << 8 | std::to_integer<std::size_t>(file[i]);
    const std::string_view id(reinterpret_cast<const char*>(file.data()), 4);
    file = file.subspan(kChunkHeader);
    if (id == name) return file.first(std::min(size, file.size()));
    file = file.subspan(std::min(size + size % 2, file.size()));
  }
  return {};
}

// Returns the EXIF block. Some writers put JPEG's marker before the block. The result does not include this marker.
std::span<const std::byte> exif_of(std::span<const std::byte> file) {
  constexpr std::string_view kMark("Exif\0\0", 6);
  const std::span<const std::byte> exif = find_chunk(file, "EXIF");
  const std::string_view text(reinterpret_cast<const char*>(exif.data()), exif.size());
  return text.starts_with(kMark) ? exif.subspan(kMark.size()) : exif;
}

std::string_view words_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED: return "it is cut off";
    case VP8_STATUS_OUT_OF_MEMORY: return "memory is short";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it has a feature that libwebp does not support";
    default: return "its data is damaged";
  }
}

}  // namespace

Result<StoredImage> decode_webp(std::span<const std::byte> file, const DecodeLimits& limits) {
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) return internal_error("libwebp has another version than its header");
  const VP8StatusCode header = WebPGetFeatures(bytes_of(file), file.size(), &config.input);
  if (header != VP8_STATUS_OK) return unreadable_image(kWebp, words_of(header));
  if (config.input.has_animation != 0) return unreadable_image(kWebp, "it is animated; accepted are still images");
  TRY(check_image_size(kWebp, config.input.width, config.input.height, limits));

  StoredImage stored{make_image(config.input.width, config.input.height)};
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = stored.image.rgb.data();
  config.output.u.RGBA.stride = config.input.width * 3;
  config.output.u.RGBA.size = stored.image.rgb.size();
  const VP8StatusCode pixels = WebPDecode(bytes_of(file), file.size(), &config);
  if (pixels != VP8_STATUS_OK) return unreadable_image(kWebp, words_of(pixels));
  stored.orientation = exif_orientation(exif_of(file));
  return stored;
}

}  // namespace tessera
