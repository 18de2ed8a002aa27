// Sizes in multiples of kDeviceAlignment, so that what lies one after another is aligned.
#pragma once

#include <cstdint>

#include "tessera/device/device.h"

namespace tessera {

// The next multiple of kDeviceAlignment. Precondition: bytes >= 0.
template <class Int>
constexpr Int align_up(Int bytes) {
  constexpr auto kAlignment = static_cast<Int>(kDeviceAlignment);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace tessera
