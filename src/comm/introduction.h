// Lets all ranks exchange handles and properties once, before their devices exchange data.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/comm/communicator.h"

namespace tessera {

// Sends `mine` to all ranks, and returns the values of all ranks in rank order. Blocks until every rank of the
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
