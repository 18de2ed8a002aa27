// EXIF's orientation: how a camera was held, so that viewers turn the picture.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/image/image.h"

namespace tessera {

// The orientation, 1 … 8, that an EXIF block (a TIFF header and its first directory) names; 1 where it names none, or
// is damaged.
int exif_orientation(std::span<const std::byte> tiff);

// The image as a viewer shows it. Orientations, by where the first row and the first column are shown: 1 top, left; 2
// top, right; 3 bottom, right; 4 bottom, left; 5 left, top; 6 right, top; 7 right, bottom; 8 left, bottom. The
// sides are exchanged by 5 to 8. Any other number is 1.
Image oriented(Image image, int orientation);

}  // namespace tessera
