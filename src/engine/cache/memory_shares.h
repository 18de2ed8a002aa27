// Who gets how much of the device's memory: weights, what forwards need, graphs, a reserve, and the KV cache what is
// left, which its groups divide as cache_shares.h says.
//
//   auto:   KV cache = capacity - taken - weights - activations - graphs - reserve, weights and KV cache at most 95 %
//   given:  KV cache = fraction · capacity - weights; activations and graphs must fit the rest
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/engine/cache/cache_shares.h"
#include "tessera/engine/engine_plan.h"

namespace tessera {

struct ShareInputs {
  bool on_host = true;        // DeviceProperties::on_host
  std::int64_t capacity = 0;  // bytes, as all that follows
  std::int64_t taken = 0;     // by the driver and other processes, before anything of ours
  std::int64_t reserve = 0;   // memory_reserve()
  std::int64_t weights = 0;
  std::int64_t activations = 0;  // MemoryReport::forwards(), and on a CPU what is the host's elsewhere
  CacheDemand cache{};
  std::int64_t useful_pages = 0;   // of context
  std::int64_t request_pages = 0;  // of one request as long as the context
  double fraction = 0;             // mem_fraction_static; 0: chosen
};

// Bytes that graph objects may take: what is left of the given fraction's other side, or, without one, what leaves the
// KV cache room for one request. kResourceExhausted, with the options that help, where forwards without any graph do
// not fit; kInvalidArgument for a fraction outside 0.1 … 0.95.
Result<std::int64_t> room_for_graphs(const ShareInputs& in);

// The shares once the graphs' is known. kResourceExhausted where no page is left for the KV cache.
Result<MemoryShares> share_memory(const ShareInputs& in, std::int64_t graph_bytes);

// One line for the start's log.
std::string shares_line(const MemoryShares& shares);

// Fills plan.memory and runner.num_pages. Sizes whose graphs do not fit, or pass the budget for graphs, are dropped
// with a note. Precondition: everything else of the plan is there.
Status plan_memory_shares(const EngineOptions& options, Device& device, EnginePlan& plan);

}  // namespace tessera
