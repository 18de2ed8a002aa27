#include "tessera/comm/exchange_memory.h"

#include <algorithm>

#include "tessera/comm/node_exchange.h"
#include "tessera/comm/peer_sizes.h"
#include "tessera/comm/pipeline.h"

namespace tessera {
namespace {

// Return the rank in the next stage and the rank in the previous stage with which this rank exchanges values.
int next_of(const ExchangePlace& place) { return place.rank - place.layout.tp_size; }
int previous_of(const ExchangePlace& place) { return place.rank + place.layout.tp_size; }

// Returns the number of bytes of host memory for collectives between nodes. This memory holds the received frames and
// Communicator::Group::rows.
std::int64_t node_bytes(const ExchangeSizes& sizes, const ExchangePlace& place) {
  const std::int64_t here = place.ranks_here();
  const std::int64_t ranks = place.layout.ranks();
  const bool leads = place.node_of(place.rank) == 0;
  if (leads) {
    const std::int64_t largest = std::max({sizes.reduced, sizes.gathered, sizes.scattered});
    return (place.nodes - 1) * NodeExchange::tensors_bytes(here * largest) + sizes.scattered;
  }
  const std::int64_t rows = sizes.scattered / ranks * here;
  return NodeExchange::result_bytes(std::max({sizes.reduced, sizes.gathered * ranks, rows})) + rows;
}

}  // namespace

std::int64_t device_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place) {
  const auto link = [&](bool receives, int other) {
    return place.is_here(other) ? static_cast<std::int64_t>(cuda::link_bytes(receives)) : kNcclBytes;
  };
  std::int64_t bytes = 0;
  if (sizes.has_collectives() && place.layout.tp_size > 1)
    bytes += place.spans_processes() ? kNcclBytes : static_cast<std::int64_t>(cuda::kMailboxBytes);
  if (!sizes.sent.empty()) bytes += link(/*receives=*/false, next_of(place));
  if (!sizes.received.empty()) bytes += link(/*receives=*/true, previous_of(place));
  return bytes;
}

std::int64_t host_exchange_bytes(const ExchangeSizes& sizes, const ExchangePlace& place, int steps) {
  if (place.spans_processes()) return sizes.has_collectives() && place.is_first_here() ? node_bytes(sizes, place) : 0;
  if (sizes.received.empty()) return 0;
  return Pipeline::link_bytes(sizes.received, place.is_here(previous_of(place)), steps);
}

}  // namespace tessera
