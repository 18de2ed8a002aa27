// Finds NaNs in rows that were read back from a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/ir/type.h"

namespace tessera {

// Returns the index of the first NaN in a row-major [*, cols] array, or -1 if there is none. Skips column
// `ignored_col`, unless it is -1. Integer arrays have no NaNs.
std::int64_t find_nan(std::span<const std::byte> bytes, ir::DType dtype, std::int64_t cols,
                      std::int64_t ignored_col = -1);

}  // namespace tessera
