// Predicts the memory that a rank's exchanges take, from the sizes of what it exchanges in its largest forward.
// DeviceState::bytes() on GPUs and Communicator::host_bytes() on hosts return what was really taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/comm/exchange_place.h"

namespace tessera {

// The device memory that NCCL takes for a communicator, as measured with two ranks on H200s
// (docs/measurements/several-gpus.md). NCCL does not say it beforehand.
inline constexpr std::int64_t kNcclBytes = std::int64_t{870} << 20;

// Bytes of one rank's values in the largest forward.
struct ExchangeSizes {
  std::int64_t reduced = 0;    // all_reduce: the largest x
  std::int64_t gathered = 0;   // all_gather and all_gather_rows: the largest x
  std::int64_t scattered = 0;  // reduce_scatter: the largest x
  std::vector<std::int64_t> sent{};
  std::vector<std::int64_t> received{};  // values from the previous stage, in order

  bool has_collectives() const { return reduced > 0 || gathered > 0 || scattered > 0; }
};

// Returns the memory that exchanges take on the rank's GPU. It does not depend on the values' sizes.
std::int64_t device_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place);

// Returns the most host memory that holds values sent to a rank. Ranks of one process read each other's tensors, which
// takes no memory. Values from other nodes are counted for the first rank of each process. Introductions
// (introduction.h) are left out. `steps` is the number of forwards in flight.
std::int64_t host_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place, int steps);

}  // namespace tessera
