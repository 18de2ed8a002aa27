// The loop of row-wise CPU kernels: rows run in parallel if there is enough work for a second thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/device/cpu/parallel.h"

namespace tessera {

// The least memory traffic of a task, in bytes. For less work, waking another thread costs more time than it saves.
inline constexpr std::int64_t kMinTaskBytes = 32 * 1024;

// Calls body(begin, end) on disjoint ranges of rows. `row_bytes` is the number of bytes that one row reads and writes.
template <class Body>
void parallel_rows(std::int64_t rows, std::int64_t row_bytes, const Body& body) {
  parallel_for(rows, std::max<std::int64_t>(1, kMinTaskBytes / std::max<std::int64_t>(1, row_bytes)), body);
}

}  // namespace tessera
