// Decodes image files into pixels: PNG, JPEG, WebP, GIF, BMP, TIFF and binary PPM (P6). The first bytes of a file
// determine its format.
//
// The pixels equal those of Pillow's Image.open, ImageOps.exif_transpose and convert("RGB"), which Hugging Face's
// load_image uses:
// - EXIF's orientation is applied, so that the model sees the picture as viewers show it.
// - Alpha is dropped, and colours are not blended with a background.
// - Palettes and grey become RGB. 16-bit samples keep their high 8 bits, but a TIFF's colours are rounded to the
//   nearest 8-bit value. (Pillow clips 16-bit grey, which turns it white.)
// - CMYK and YCCK in a JPEG are read inverted, as Adobe writes them.
// - Colour profiles and gamma are ignored.
//
// Some files contain several pictures. In that case the result is the still image that an animated PNG has for viewers
// without animation, the first frame of a GIF, or the first picture of a TIFF. An animated WebP is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/image/image.h"

namespace tessera {

// Limits for the bytes of a file and for the image size in the file's header. They are checked before memory for pixels
// is allocated.
struct DecodeLimits {
  std::int64_t most_bytes = std::int64_t{64} << 20;  // size of the file
  // Number of pixels. take_memory is called with 12 bytes per pixel for a JPEG, and with 8 bytes per pixel for any
  // other format. A TIFF causes a second call of take_memory with the bytes that libtiff needs, because a pixel may
  // have many samples, and a tile may be larger than the picture.
  std::int64_t most_pixels = std::int64_t{64} << 20;
  std::int32_t most_side = 32768;  // pixels
  double most_ratio = 200;  // longer side divided by the shorter side; the image processors refuse greater ratios
  // Called once or twice before memory for pixels is allocated. `bytes` is an upper bound, computed from the header, of
  // all the memory that decoding will take besides the file. A second call replaces the first bound with an equal or
  // larger bound. If take_memory returns an error, decode_image() ends and returns the error. May be null. Borrowed.
  const std::function<Status(std::int64_t bytes)>* take_memory = nullptr;
};

// Decodes a whole file. Thread-safe. Keeps no reference to `file`. Returns the errors of take_memory. Returns
// invalid_argument if the file is not an image in one of these formats, is damaged or truncated, is an animated WebP,
// or exceeds a limit. In the last case the message has the limit and the file's value.
Result<Image> decode_image(std::span<const std::byte> file, const DecodeLimits& limits = {});

}  // namespace tessera
