// The size of a huge page, which needs one entry of the TLB instead of 512.
#pragma once

#include <cstddef>

namespace tessera {

// In bytes, on x86-64 and on 64-bit Arm with pages of 4 KiB.
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace tessera
