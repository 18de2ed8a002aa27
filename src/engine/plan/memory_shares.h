// Divides the device's memory. The capacity is reduced by what other processes and the driver have taken, and by
// weights, the activations and exchanges of forwards, graphs and a reserve. The KV cache gets the rest, which
// cache_shares.h divides among its groups. The plan chooses the option mem_fraction_static (auto), or the user gives it
// (given):
//
//   auto:   KV cache = capacity - taken - weights - activations - graphs - reserve. Weights and KV cache take
//           at most 95 % of the capacity, and the KV cache takes at most 2 GiB on a CPU.
//   given:  KV cache = fraction · capacity - weights; activations and graphs must fit what the fraction leaves
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/engine/cache/cache_shares.h"
#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"

namespace tessera {

struct ShareInputs {
  bool on_host = true;        // DeviceProperties::on_host
  std::int64_t capacity = 0;  // in bytes, like all other members except the pages and the fraction
  std::int64_t taken = 0;     // what the driver and other processes use before this program takes memory
  std::int64_t reserve = 0;   // memory_reserve()
  std::int64_t weights = 0;
  std::int64_t activations = 0;  // MemoryReport::forwards(); on a CPU also MemoryUse::kStepResults
  CacheDemand cache{};
  std::int64_t useful_pages = 0;   // pages of context that all running requests together can use
  std::int64_t request_pages = 0;  // pages of one request as long as the context
  double fraction = 0;             // mem_fraction_static; 0: the plan chooses
};

// Returns the bytes that graph objects may take. With a given fraction, these are the bytes that neither the fraction
// nor activations take. Without a given fraction, graphs leave the KV cache room for one request of the longest
// context. On a CPU, this room is at most 2 GiB. If activations leave less than this room, graphs get an eighth of what
// activations leave. Returns kResourceExhausted if weights or forwards do not fit even without graphs. The message
// names options to change. Returns kInvalidArgument for a fraction outside 0.1 … 0.95.
Result<std::int64_t> room_for_graphs(const ShareInputs& in);

// Returns the shares once the bytes of graphs are known. Returns kResourceExhausted if no page is left for the KV
// cache.
Result<MemoryShares> share_memory(const ShareInputs& in, std::int64_t graph_bytes);

// Returns one line for the log of the start.
std::string shares_line(const MemoryShares& shares);

// Fills plan.memory and runner.num_pages. Drops, with a note, sizes whose graphs do not fit or exceed the graph budget.
// Precondition: the rest of the plan is complete.
Status plan_memory_shares(const EngineOptions& options, Device& device, EnginePlan& plan);

}  // namespace tessera
