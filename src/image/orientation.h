// Turns an image as its EXIF orientation says, which depends on how the camera was held.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/image/image.h"

namespace tessera {

// Returns the orientation, 1 … 8, in an EXIF block (a TIFF header and its first directory). Returns 1 if the block has
// no orientation or is damaged.
int exif_orientation(std::span<const std::byte> tiff);

// Returns the image as a viewer shows it. The orientation says on which sides of the shown picture the first stored row
// and the first stored column lie. Written as number (side of the row, side of the column), the orientations are 1
// (top, left), 2 (top, right), 3 (bottom, right), 4 (bottom, left), 5 (left, top), 6 (right, top), 7 (right, bottom), 8
// (left, bottom). Orientations 5 to 8 exchange width and height. A number outside of 1 … 8 counts as 1.
Image oriented(Image image, int orientation);

}  // namespace tessera
