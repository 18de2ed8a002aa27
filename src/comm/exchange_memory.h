// Predicts how much memory a rank's exchanges take. The prediction needs the sizes of the values in the rank's largest
// forward. The actual memory is returned by DeviceState::bytes() for GPUs and by Communicator::host_bytes() for hosts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/comm/exchange_place.h"

namespace tessera {

// The device memory that NCCL takes for a communicator, measured with two ranks on H200s
// (docs/measurements/several-gpus.md). NCCL has no function that predicts it.
inline constexpr std::int64_t kNcclBytes = std::int64_t{870} << 20;

// The sizes in bytes of the values that one rank exchanges in the largest forward.
struct ExchangeSizes {
  std::int64_t reduced = 0;    // the largest input of an all_reduce
  std::int64_t gathered = 0;   // the largest input of an all_gather or all_gather_rows
  std::int64_t scattered = 0;  // the largest input of a reduce_scatter
  // Element n of `sent` is the size of the n-th value that a forward sends to the next stage. Element n of `received`
  // is the size of the n-th value that a forward receives from the previous stage.
  std::vector<std::int64_t> sent{};
  std::vector<std::int64_t> received{};

  bool has_collectives() const { return reduced > 0 || gathered > 0 || scattered > 0; }
};

// Returns the number of bytes that exchanges take on the rank's GPU. This number depends on which members of `sizes`
// are neither 0 nor empty, but not on how large these members are.
std::int64_t device_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place);

// Returns the maximum number of bytes of host memory in which values from other ranks wait for this rank. A collective
// within one process takes no memory, because the ranks read each other's tensors directly. The tensors of a collective
// between nodes are counted for the first rank of each process. Values between stages are counted for the rank that
// receives them. Introductions (introduction.h) are left out. `steps` is the number of forwards in flight.
std::int64_t host_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place, int steps);

}  // namespace tessera
