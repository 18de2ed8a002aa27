// Applies EXIF's orientation, which says how the camera was held, so that the picture can be turned.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/image/image.h"

namespace tessera {

// Returns the orientation, 1 … 8, in an EXIF block (a TIFF header and its first directory). Returns 1 if the block has
// none or is damaged.
int exif_orientation(std::span<const std::byte> tiff);

// Returns the image as a viewer shows it. The orientation says where the first row and the first column are shown: 1
// top, left; 2 top, right; 3 bottom, right; 4 bottom, left; 5 left, top; 6 right, top; 7 right, bottom; 8 left, bottom.
// Orientations 5 to 8 exchange the sides. Any other number counts as 1.
Image oriented(Image image, int orientation);

}  // namespace tessera
