// Rounds sizes up to multiples of kDeviceAlignment, so that buffers placed one after another stay aligned.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

// Returns the smallest multiple of `multiple` that is at least `bytes`. Preconditions: bytes >= 0, multiple > 0.
template <class Int>
constexpr Int align_up(Int bytes, Int multiple = static_cast<Int>(kDeviceAlignment)) {
  return (bytes + multiple - 1) / multiple * multiple;
}

}  // namespace tessera
