// NaNs in rows that were read back from a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/ir/type.h"

namespace tessera {

// Of a row-major [*, cols] array: the index of the first element that is NaN outside `ignored_col` (-1: no column is);
// -1: none, and none in integers.
std::int64_t find_nan(std::span<const std::byte> bytes, ir::DType dtype, std::int64_t cols,
                      std::int64_t ignored_col = -1);

}  // namespace tessera
