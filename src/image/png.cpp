// Decodes PNG with libpng. libpng reports errors with longjmp, which skips destructors. So no object that is created
// between setjmp and the calls into libpng may have a destructor.
#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "tessera/image/decoders.h"
#include "tessera/image/orientation.h"

namespace tessera {
namespace {

constexpr std::string_view kPng = "PNG";

// Reads one file in steps. A step that fails returns false and sets the reason. No other step may be called after that.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : next_(bytes_of(file)), left_(file.size()) {}
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  bool read_header() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      std::snprintf(reason, sizeof reason, "libpng cannot start");
      return false;
    }
    if (setjmp(escape_) != 0) return false;
    // Turns off libpng's limits, because decode_png() checks the size itself.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    return true;
  }

  std::int64_t width() const { return png_get_image_width(png_, info_); }
  std::int64_t height() const { return png_get_image_height(png_, info_); }

  // Fills `rgb`, [height, width, 3].
  bool read_pixels(std::uint8_t* rgb) {
    if (setjmp(escape_) != 0) return false;
    const int colours = png_get_color_type(png_, info_);
    png_set_strip_16(png_);
    if (colours == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
    if ((colours & PNG_COLOR_MASK_COLOR) == 0) {
      png_set_expand_gray_1_2_4_to_8(png_);
      png_set_gray_to_rgb(png_);
    }
    png_set_strip_alpha(png_);
    const int passes = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    const std::size_t row_bytes = static_cast<std::size_t>(width()) * 3;
    if (png_get_rowbytes(png_, info_) != row_bytes) png_error(png_, "its rows are not of RGB");
    const std::int64_t rows = height();
    for (int pass = 0; pass < passes; ++pass) {
      for (std::int64_t y = 0; y < rows; ++y) {
        png_read_row(png_, rgb + static_cast<std::size_t>(y) * row_bytes, nullptr);
      }
    }
    png_read_end(png_, info_);
    return true;
  }

  // Returns EXIF's orientation. Call it after read_pixels(), because the EXIF block may follow the pixels.
  int orientation() {
    png_uint_32 size = 0;
    png_bytep exif = nullptr;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0) return 1;
    return exif_orientation({reinterpret_cast<const std::byte*>(exif), size});
  }

  char reason[200] = "";

 private:
  static PngReader& of(void* pointer) { return *static_cast<PngReader*>(pointer); }

  [[noreturn]] static void on_error(png_structp png, png_const_charp words) {
    PngReader& reader = of(png_get_error_ptr(png));
    std::snprintf(reader.reason, sizeof reader.reason, "%s", words);
    std::longjmp(reader.escape_, 1);
  }

  static void on_warning(png_structp, png_const_charp) {}

  static void on_read(png_structp png, png_bytep to, std::size_t size) {
    PngReader& reader = of(png_get_io_ptr(png));
    if (size > reader.left_) png_error(png, "it is cut off");
    std::memcpy(to, reader.next_, size);
    reader.next_ += size;
    reader.left_ -= size;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  const std::uint8_t* next_;
  std::size_t left_;
  std::jmp_buf escape_;
};

// Checks the size in the header before libpng reads it, because libpng's error for a side of 0 does not state the
// size.
Status check_claimed_size(std::span<const std::byte> file, const DecodeLimits& limits) {
  constexpr std::size_t kSizes = 16;
  if (file.size() < kSizes + 8) return unreadable_image(kPng, "it is cut off");
  const std::uint8_t* sizes = bytes_of(file) + kSizes;
  return check_image_size(kPng, png_get_uint_32(sizes), png_get_uint_32(sizes + 4), limits);
}

}  // namespace

Result<StoredImage> decode_png(std::span<const std::byte> file, const DecodeLimits& limits) {
  TRY(check_claimed_size(file, limits));
  PngReader reader(file);
  if (!reader.read_header()) return unreadable_image(kPng, reader.reason);
  TRY(check_image_size(kPng, reader.width(), reader.height(), limits));
  StoredImage stored{make_image(static_cast<std::int32_t>(reader.width()), static_cast<std::int32_t>(reader.height()))};
  if (!reader.read_pixels(stored.image.rgb.data())) return unreadable_image(kPng, reader.reason);
  stored.orientation = reader.orientation();
  return stored;
}

}  // namespace tessera
