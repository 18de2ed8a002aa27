// A file's bytes become pixels: PNG, JPEG, WebP, GIF, BMP, TIFF and binary PPM (P6), told apart by content.
//
// The pixels are those of Pillow's Image.open, ImageOps.exif_transpose and convert("RGB"), which is how Hugging Face's
// load_image reads an image:
//   - EXIF's orientation is applied, so that the model sees what a viewer shows;
//   - alpha is dropped, not blended: the colour that is stored stays;
//   - palettes and grey become RGB; of 16 bits the high 8 are taken, of a TIFF's colours the nearest 8
//     (Pillow clips 16-bit grey, which turns it white);
//   - CMYK and YCCK in a JPEG are read as Adobe writes them, inverted;
//   - colour profiles and gamma are ignored.
// An animated PNG is read as the still image that it has for viewers without animation, a GIF as its first frame, a
// TIFF as its first picture. An animated WebP is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tessera/base/status.h"
#include "tessera/image/image.h"

namespace tessera {

// What a file may claim. Checked against its header, before memory for pixels is taken.
struct DecodeLimits {
  std::int64_t most_bytes = std::int64_t{64} << 20;  // of the file
  std::int64_t most_pixels = std::int64_t{64}
                             << 20;  // decoding holds 3 bytes of each, and up to 9 more of a progressive JPEG
  std::int32_t most_side = 32768;    // pixels
  double most_ratio = 200;           // of the longer side to the shorter; the processors refuse more
  // Called with the bytes that decoding will take at most, as the header tells the size; perhaps twice. Its error ends
  // the decoding, and is returned. Null: they are taken. Borrowed.
  const std::function<Status(std::int64_t bytes)>* take_memory = nullptr;
};

// Decodes a whole file. Errors, all invalid_argument: it is no image of these formats, is damaged or cut off, is
// animated, or claims more than `limits`; then the message has the limit and the file's value. Or take_memory's.
// Thread-safe; keeps no reference to `file`.
Result<Image> decode_image(std::span<const std::byte> file, const DecodeLimits& limits = {});

}  // namespace tessera
