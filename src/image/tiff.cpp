// Decodes the first picture of a TIFF with libtiff. https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf
#include <fmt/format.h>
#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "tessera/image/decoders.h"

namespace tessera {
namespace {

constexpr std::string_view kTiff = "TIFF";
// A decoded strip or tile may take at most kMostBlockBytes · DecodeLimits::most_pixels bytes. A picture of most_pixels
// pixels with four 16-bit samples per pixel takes exactly this much.
constexpr std::int64_t kMostBlockBytes = 8;
// The accepted compressions, which are those that cameras, scanners and Pillow write. libtiff may support others, for
// special uses.
constexpr std::uint16_t kCompressions[] = {COMPRESSION_NONE,      COMPRESSION_CCITTRLE, COMPRESSION_CCITTFAX3,
                                           COMPRESSION_CCITTFAX4, COMPRESSION_LZW,      COMPRESSION_JPEG,
                                           COMPRESSION_PACKBITS,  COMPRESSION_DEFLATE,  COMPRESSION_ADOBE_DEFLATE};

// The file in memory, and the first error that libtiff reported.
struct TiffSource {
  std::span<const std::byte> file;
  std::uint64_t at = 0;
  char reason[200] = "";

  static TiffSource& of(thandle_t handle) { return *static_cast<TiffSource*>(handle); }
  static tmsize_t read(thandle_t handle, void* to, tmsize_t size) {
    TiffSource& source = of(handle);
    if (size <= 0 || source.at >= source.file.size()) return 0;
    const auto taken = std::min<std::uint64_t>(static_cast<std::uint64_t>(size), source.file.size() - source.at);
    std::memcpy(to, source.file.data() + source.at, taken);
    source.at += taken;
    return static_cast<tmsize_t>(taken);
  }
  static tmsize_t write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t seek(thandle_t handle, toff_t offset, int whence) {
    TiffSource& source = of(handle);
    const std::uint64_t from = whence == SEEK_CUR ? source.at : whence == SEEK_END ? source.file.size() : 0;
    return source.at = from + offset;
  }
  static int close(thandle_t) { return 0; }
  static toff_t size(thandle_t handle) { return of(handle).file.size(); }

  // Keeps the first error. Returns 1, so that libtiff does not print the error.
  static int on_error(TIFF*, void* user, const char*, const char* format, va_list values) {
    auto& source = *static_cast<TiffSource*>(user);
    if (source.reason[0] == '\0') std::vsnprintf(source.reason, sizeof source.reason, format, values);
    return 1;
  }
  // Turns one warning into an error: the warning that a tag's data lie beyond the end of the file. The missing data may
  // be the palette, which the pixels need.
  static int on_warning(TIFF* tiff, void* user, const char* module, const char* format, va_list values) {
    return std::string_view(format).starts_with("IO error") ? on_error(tiff, user, module, format, values) : 1;
  }
};

struct CloseTiff {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};
struct FreeOptions {
  void operator()(TIFFOpenOptions* options) const { TIFFOpenOptionsFree(options); }
};
using OpenTiff = std::unique_ptr<TIFF, CloseTiff>;

OpenTiff open_tiff(TiffSource& source, const DecodeLimits& limits) {
  const std::unique_ptr<TIFFOpenOptions, FreeOptions> options(TIFFOpenOptionsAlloc());
  if (options == nullptr) return nullptr;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), static_cast<tmsize_t>(limits.most_pixels * kMostBlockBytes));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &TiffSource::on_error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), &TiffSource::on_warning, &source);
  // The flag "m" turns off memory-mapping of the file.
  return OpenTiff(TIFFClientOpenExt("image", "rm", &source, &TiffSource::read, &TiffSource::write, &TiffSource::seek,
                                    &TiffSource::close, &TiffSource::size, nullptr, nullptr, options.get()));
}

Status tiff_error(const TiffSource& source) {
  return unreadable_image(kTiff, source.reason[0] != '\0' ? source.reason : "it is damaged");
}

// Checks the size in the header. This is the size of the stored picture, before its orientation is applied.
Status check_header(TIFF* tiff, const DecodeLimits& limits) {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint16_t compression = COMPRESSION_NONE;
  TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height);
  TRY(check_image_size(kTiff, width, height, limits));
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  if (std::ranges::find(kCompressions, compression) == std::end(kCompressions))
    return unreadable_image(kTiff, fmt::format("its compression is number {}; accepted are none, CCITT, LZW, JPEG, "
                                               "PackBits and Deflate",
                                               compression));
  return ok_status();
}

// Calls take_memory with an upper bound of the bytes that reading takes: the pixels as libtiff returns them, the strip
// or tile that libtiff decodes as a whole, and a copy of its stored bytes. A strip may be the whole picture, and a tile
// may be larger than the picture. Memory for the image is allocated only after libtiff has freed the strip or tile. The
// image takes at most 4 bytes per pixel, so the total stays within the bound.
Status take_block_memory(TIFF* tiff, std::int64_t pixels, std::size_t file_bytes, const DecodeLimits& limits) {
  std::int64_t block = pixels;
  if (TIFFIsTiled(tiff) != 0) {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &width);
    TIFFGetField(tiff, TIFFTAG_TILELENGTH, &height);
    if (std::int64_t{std::max(width, height)} > limits.most_side) {
      return unreadable_image(kTiff, fmt::format("its tiles have {} × {} pixels; accepted are sides of up to {}", width,
                                                 height, limits.most_side));
    }
    block = std::int64_t{width} * height;
  }
  if (limits.take_memory == nullptr) return ok_status();
  std::uint16_t samples = 1;
  std::uint16_t bits = 1;
  std::uint16_t compression = COMPRESSION_NONE;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_SAMPLESPERPIXEL, &samples);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_BITSPERSAMPLE, &bits);
  TIFFGetFieldDefaulted(tiff, TIFFTAG_COMPRESSION, &compression);
  // If samples are interleaved, libtiff reads all of them together. If each sample has its own plane, libtiff reads up
  // to four planes at once.
  const std::int64_t values = std::max<std::int64_t>(samples, 4);
  const std::int64_t bytes_of_value = std::max((bits + 7) / 8, 1);
  // libtiff refuses to allocate a strip or tile above this limit (open_tiff). With the limit, the products below do not
  // overflow.
  block = std::min(block, limits.most_pixels * kMostBlockBytes / (values * bytes_of_value));
  // libjpeg keeps a coefficient of 2 bytes for each value if the JPEG is progressive.
  const std::int64_t bytes_of_coefficient = compression == COMPRESSION_JPEG ? 2 : 0;
  const std::int64_t block_bytes = block * values * (bytes_of_value + bytes_of_coefficient);
  return (*limits.take_memory)(4 * pixels + std::max(4 * pixels, block_bytes) + static_cast<std::int64_t>(file_bytes));
}

// Makes libtiff return the stored picture, without turning it and without multiplying colours by alpha. Returns the
// picture's orientation.
int keep_stored(TIFF* tiff) {
  std::uint16_t orientation = ORIENTATION_TOPLEFT;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
  TIFFSetField(tiff, TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
  std::uint16_t count = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 0 && count > 0) {
    std::vector<std::uint16_t> unspecified(count, EXTRASAMPLE_UNSPECIFIED);
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, unspecified.data());
  }
  return orientation >= 1 && orientation <= 8 ? orientation : 1;
}

}  // namespace

Result<StoredImage> decode_tiff(std::span<const std::byte> file, const DecodeLimits& limits) {
  TiffSource source{file};
  const OpenTiff tiff = open_tiff(source, limits);
  if (tiff == nullptr || source.reason[0] != '\0') return tiff_error(source);
  TRY(check_header(tiff.get(), limits));
  const int orientation = keep_stored(tiff.get());
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
  TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
  char why[1024] = "";
  if (TIFFRGBAImageOK(tiff.get(), why) == 0) return unreadable_image(kTiff, why);
  TRY(take_block_memory(tiff.get(), std::int64_t{width} * height, file.size(), limits));
  std::vector<std::uint32_t> pixels(std::size_t{width} * height);
  constexpr int kStopOnError = 1;
  const int read =
      TIFFReadRGBAImageOriented(tiff.get(), width, height, pixels.data(), ORIENTATION_TOPLEFT, kStopOnError);
  if (read == 0 || source.reason[0] != '\0') return tiff_error(source);
  StoredImage stored{make_image(static_cast<std::int32_t>(width), static_cast<std::int32_t>(height)), orientation};
  std::uint8_t* to = stored.image.rgb.data();
  for (const std::uint32_t pixel : pixels) {
    *to++ = static_cast<std::uint8_t>(TIFFGetR(pixel));
    *to++ = static_cast<std::uint8_t>(TIFFGetG(pixel));
    *to++ = static_cast<std::uint8_t>(TIFFGetB(pixel));
  }
  return stored;
}

}  // namespace tessera
