// Exchanges handles and properties among ranks once, before their devices work together.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Exchanges `mine` with all ranks and returns every rank's value, in rank order. Blocks until every rank of the
// communicator has called introduce(). Errors are those of all_gather().
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
