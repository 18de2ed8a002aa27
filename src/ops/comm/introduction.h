// What ranks tell each other once, before their devices meet.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/comm/collective.h"

namespace tessera {

// Each rank's own, by rank. Blocks until every rank of the communicator has called it; errors are all_gather()'s.
template <class Introduction>
Result<std::vector<Introduction>> introduce(Communicator& communicator, Introduction mine) {
  static_assert(std::is_trivially_copyable_v<Introduction>);
  const auto bytes = [](Introduction* data, std::size_t count) {
    return TensorView{.data = {reinterpret_cast<std::byte*>(data)},
                      .dtype = ir::DType::kUInt8,
                      .rank = 2,
                      .dims = {1, static_cast<std::int64_t>(count * sizeof(Introduction))}};
  };
  std::vector<Introduction> all(static_cast<std::size_t>(communicator.ranks()));
  TRY(communicator.all_gather(bytes(&mine, 1), bytes(all.data(), all.size())));
  return all;
}

}  // namespace tessera
