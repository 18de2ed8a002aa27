// Rounds sizes up to kDeviceAlignment, so that buffers placed one after another are aligned.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

// Returns the next multiple of `multiple`. Preconditions: bytes >= 0, multiple > 0.
template <class Int>
constexpr Int align_up(Int bytes, Int multiple = static_cast<Int>(kDeviceAlignment)) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace tessera
