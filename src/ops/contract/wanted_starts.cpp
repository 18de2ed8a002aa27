#include "tessera/ops/contract/wanted_starts.h"

#include <algorithm>
#include <cstddef>

namespace tessera {

void find_wanted_starts(const ForwardBatch& batch, std::span<std::int32_t> starts) {
  std::ranges::copy(batch.query_lens, starts.begin());
  std::size_t request = 0;
  std::int32_t begin = 0;  // the request's first row
  for (const std::int32_t row : batch.wanted_rows) {
    if (row < begin) request = 0, begin = 0;
    while (row >= begin + batch.query_lens[request]) begin += batch.query_lens[request++];
    starts[request] = std::min(starts[request], row - begin);
  }
}

}  // namespace tessera
