// Divides integers and rounds up.
#pragma once

#include <cstdint>

namespace tessera {

// Returns the least q with q · b >= a, for a >= 0 and b > 0. This is the number of blocks of size b that `a` items
// need.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace tessera
