// Converts float32 values on the host to and from a device's floating-point type.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

// narrow_floats() rounds to nearest even, and widen_floats() is exact. `dtype` is a floating-point type. The byte
// buffer holds one value of that type for each float.
Status narrow_floats(std::span<const float> from, ir::DType dtype, std::byte* to);
Status widen_floats(const std::byte* from, ir::DType dtype, std::span<float> to);

}  // namespace tessera
