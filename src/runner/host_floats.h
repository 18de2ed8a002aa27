// Float32 on the host to and from the type that a device's values have.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/base/status.h"
#include "tessera/ir/type.h"

namespace tessera {

// `dtype` is a floating-point type; `to` and `from` have as many elements of it as there are floats. To nearest even.
Status narrow_floats(std::span<const float> from, ir::DType dtype, std::byte* to);
Status widen_floats(const std::byte* from, ir::DType dtype, std::span<float> to);

}  // namespace tessera
