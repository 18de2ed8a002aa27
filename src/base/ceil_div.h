// Integer division that rounds up.
#pragma once

#include <cstdint>

namespace tessera {

// The least q with q · b >= a, for a >= 0 and b > 0: how many blocks of b hold a things.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tessera
