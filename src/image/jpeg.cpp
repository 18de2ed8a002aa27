// Decodes JPEG with libjpeg-turbo. libjpeg reports errors with longjmp, which skips destructors. So no object that is
// created between setjmp and the calls into libjpeg may have a destructor.
#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tessera/image/decoders.h"
#include "tessera/image/orientation.h"
// <cstdio> must be included before jpeglib.h, which needs it.
#include <jerror.h>
#include <jpeglib.h>

namespace tessera {
namespace {

constexpr std::string_view kJpeg = "JPEG";
// The maximum number of scans in a file. The limit is needed because even a scan of a few bytes makes a decoder process
// the whole image. Encoders write about ten scans.
constexpr int kMostScans = 100;

// Reads one file in steps. A step that fails returns false and sets the reason. No other step may be called after that.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::byte> file) : file_(file) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = on_error;
    errors_.emit_message = on_message;
    progress_.progress_monitor = on_progress;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  bool read_header() {
    if (setjmp(escape_) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, bytes_of(file_), file_.size());
    jpeg_save_markers(&jpeg_, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  std::int64_t width() const { return jpeg_.image_width; }
  std::int64_t height() const { return jpeg_.image_height; }
  int colours() const { return jpeg_.num_components; }
  bool is_cmyk() const { return jpeg_.num_components == 4; }

  // Fills `rgb`, [height, width, 3]. For CMYK, `row` must have room for one row, [width, 4]. For other colours `row` is
  // not used.
  bool read_pixels(std::uint8_t* rgb, std::uint8_t* row) {
    if (setjmp(escape_) != 0) return false;
    jpeg_.out_color_space = is_cmyk() ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    const std::size_t row_bytes = std::size_t{jpeg_.output_width} * 3;
    while (jpeg_.output_scanline < jpeg_.output_height) {
      std::uint8_t* const to = rgb + jpeg_.output_scanline * row_bytes;
      JSAMPROW rows[1] = {is_cmyk() ? row : to};
      jpeg_read_scanlines(&jpeg_, rows, 1);
      if (is_cmyk()) cmyk_to_rgb(row, to);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  // Returns EXIF's orientation. Call it before read_pixels(), which frees the markers.
  int orientation() const {
    constexpr std::string_view kExif("Exif\0\0", 6);
    for (const jpeg_marker_struct* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (!data.starts_with(kExif)) continue;
      return exif_orientation(
          {reinterpret_cast<const std::byte*>(data.data()) + kExif.size(), data.size() - kExif.size()});
    }
    return 1;
  }

  char reason[JMSG_LENGTH_MAX] = "";

 private:
  static JpegReader& of(j_common_ptr jpeg) { return *static_cast<JpegReader*>(jpeg->client_data); }

  [[noreturn]] static void on_error(j_common_ptr jpeg) {
    JpegReader& reader = of(jpeg);
    jpeg->err->format_message(jpeg, reader.reason);
    std::longjmp(reader.escape_, 1);
  }

  [[noreturn]] void fail(const char* words) {
    std::snprintf(reason, sizeof reason, "%s", words);
    std::longjmp(escape_, 1);
  }

  // Handles warnings and traces. If the file ends early, libjpeg only warns and fills the rest with grey. This function
  // makes that an error.
  static void on_message(j_common_ptr jpeg, int level) {
    if (level < 0 && jpeg->err->msg_code == JWRN_JPEG_EOF) of(jpeg).fail("it is cut off");
  }

  static void on_progress(j_common_ptr jpeg) {
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > kMostScans) {
      of(jpeg).fail("it has more than 100 scans");
    }
  }

  // Converts CMYK to RGB. Adobe stores inverted values, 255 for no ink, and readers assume that all writers do so.
  void cmyk_to_rgb(const std::uint8_t* cmyk, std::uint8_t* rgb) const {
    for (JDIMENSION x = 0; x < jpeg_.output_width; ++x, cmyk += 4, rgb += 3) {
      for (int c = 0; c < 3; ++c) {
        // The stored values are inverted, so each value is the light that its ink lets pass. The result is the product
        // cmyk[c] · cmyk[3] / 255. To round like Pillow, the product is computed as cmyk[3] minus the rounded light
        // that the colour's ink absorbs.
        const int ink = 255 - cmyk[c];
        const int product = ink * cmyk[3] + 128;
        const int taken = ((product >> 8) + product) >> 8;
        rgb[c] = static_cast<std::uint8_t>(cmyk[3] - taken);
      }
    }
  }

  std::span<const std::byte> file_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_;
};

}  // namespace

Result<StoredImage> decode_jpeg(std::span<const std::byte> file, const DecodeLimits& limits) {
  JpegReader reader(file);
  if (!reader.read_header()) return unreadable_image(kJpeg, reader.reason);
  TRY(check_image_size(kJpeg, reader.width(), reader.height(), limits));
  if (reader.colours() != 1 && reader.colours() != 3 && reader.colours() != 4) {
    return unreadable_image(kJpeg, fmt::format("it has {} components; accepted are 1, 3 and 4", reader.colours()));
  }
  StoredImage stored{make_image(static_cast<std::int32_t>(reader.width()), static_cast<std::int32_t>(reader.height()))};
  std::vector<std::uint8_t> row(reader.is_cmyk() ? static_cast<std::size_t>(reader.width()) * 4 : 0);
  stored.orientation = reader.orientation();
  if (!reader.read_pixels(stored.image.rgb.data(), row.data())) return unreadable_image(kJpeg, reader.reason);
  return stored;
}

}  // namespace tessera
