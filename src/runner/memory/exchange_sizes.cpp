#include "tessera/runner/memory/exchange_sizes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/ops/collective/collective.h"
#include "tessera/ops/collective/row_exchange.h"
#include "tessera/ops/collective/stage_exchange.h"

namespace tessera {
namespace {

// Raises each element of `most` to at least the element of `values` with the same index. All graphs use the same link
// buffers. Each graph sends its n-th value through the n-th buffer, so this buffer must have room for the largest n-th
// value of all graphs.
void raise_each(const std::vector<std::int64_t>& values, std::vector<std::int64_t>& most) {
  most.resize(std::max(most.size(), values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) most[i] = std::max(most[i], values[i]);
}

}  // namespace

Status add_exchanges(const ir::Graph& graph, const ir::Bucket& bucket, ExchangeSizes& sizes) {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
  for (const ir::Node& node : graph.nodes) {
    const bool sums = node.op == kAllReduce.name;
    const bool gathers = node.op == kAllGather.name || node.op == kAllGatherRows.name;
    const bool scatters = node.op == kReduceScatter.name;
    const bool sends = node.op == kSendToNext.name;
    const bool receives = node.op == kReceiveFromPrevious.name;
    if (!(sums || gathers || scatters || sends || receives)) continue;
    const std::int64_t bytes = TRY(ir::size_bytes(graph.value(node.operands[0]).type, bucket));
    if (sums) sizes.reduced = std::max(sizes.reduced, bytes);
    if (gathers) sizes.gathered = std::max(sizes.gathered, bytes);
    if (scatters) sizes.scattered = std::max(sizes.scattered, bytes);
    if (sends) sent.push_back(bytes);
    if (receives) received.push_back(bytes);
  }
  raise_each(sent, sizes.sent);
  raise_each(received, sizes.received);
  return ok_status();
}

}  // namespace tessera
