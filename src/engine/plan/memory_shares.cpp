#include "tessera/engine/plan/memory_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>

#include "tessera/base/ceil_div.h"
#include "tessera/device/alignment.h"
#include "tessera/device/cpu/host_limits.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/runner/capture/graph_budget.h"
#include "tessera/runner/memory/kv_storage.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/memory/prediction.h"

namespace tessera {
namespace {

constexpr double kLeastFraction = 0.1;
constexpr double kMostFraction = 0.95;
constexpr std::int64_t kCpuMaxKvBytes = std::int64_t{2} << 30;
// If no request of the longest context fits, graphs may take 1 / kLeastGraphShare of the memory that forwards leave.
constexpr std::int64_t kLeastGraphShare = 8;
// Bytes that a process maps after the plan is made and that the plan does not count: stacks of threads, heaps, kernels
// that oneDNN makes at run time. With all sizes captured, `tessera serve` of the bundled model maps about 400 MiB in
// this way.
constexpr std::int64_t kMappedLater = std::int64_t{512} << 20;
constexpr const char* kWhatHelps =
    "lower mem_fraction_static (0.8, 0.7), chunked_prefill_size (1024) or piecewise_cuda_graph_max_tokens (2048, 1024, "
    "512)";

std::string mib(std::int64_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20)); }

std::int64_t given_share(const ShareInputs& in) {
  return static_cast<std::int64_t>(in.fraction * static_cast<double>(in.capacity));
}

// Returns the bytes for weights and KV cache together.
std::int64_t static_share(const ShareInputs& in, std::int64_t graph_bytes) {
  if (in.fraction != 0) return given_share(in);
  const auto most = static_cast<std::int64_t>(kMostFraction * static_cast<double>(in.capacity));
  return std::min(most, in.capacity - in.taken - in.activations - graph_bytes - in.reserve);
}

Result<CacheDemand> demand_of(const EnginePlan& plan) {
  CacheDemand demand{.groups = {}, .limits = plan.runner, .max_running = plan.max_running};
  const ir::Graph& body = plan.graphs.body;
  const std::vector<std::int64_t> bytes = TRY(KvStorage::page_bytes(cached_graphs(plan.graphs)));
  for (std::size_t g = 0; g < bytes.size(); ++g) {
    const ir::CacheGroup& group = body.cache_groups[g];
    demand.groups.push_back(
        {.name = group.name, .kind = group.kind, .window = group.window, .num_pages = 0, .page_bytes = bytes[g]});
  }
  return demand;
}

Result<ShareInputs> inputs_of(const EngineOptions& options, Device& device, const EnginePlan& plan,
                              const MemoryReport& predicted) {
  const DeviceProperties& properties = device.properties();
  const std::int64_t per_request = pages_for(plan.runner.context_length, plan.runner.page_size);
  const int shares = ranks_here(options) * replicas_here(options);  // number of ranks that share the host's memory
  const CacheDemand demand = TRY(demand_of(plan));
  ShareInputs in{.on_host = properties.on_host,
                 .capacity = properties.on_host ? properties.memory_bytes / shares : properties.memory_bytes,
                 .reserve = memory_reserve(properties),
                 .activations = predicted.forwards(),
                 .cache = demand,
                 .useful_pages =
                     options.max_total_tokens > 0
                         ? pages_for(std::min<std::int64_t>(options.max_total_tokens, INT32_MAX), plan.runner.page_size)
                         : per_request * plan.max_running,
                 .request_pages = per_request,
                 .fraction = options.mem_fraction_static};
  if (properties.on_host) {
    in.activations += predicted[MemoryUse::kStepResults];
    // The host's free memory is not subtracted, because it changes all the time and the system's caches shrink on
    // demand. Under `ulimit -v` or `-d`, the limit covers everything that this process maps. Its code, stacks and heaps
    // then count as taken. The reserve includes kMappedLater, because the process will map more.
    if (read_host_memory().mapped_counts) {
      in.taken = std::max<std::int64_t>(properties.memory_bytes - device.available_bytes(), 0) / shares;
      in.reserve += kMappedLater / shares;
    }
  } else {
    in.taken = std::max<std::int64_t>(in.capacity - device.available_bytes(), 0);
  }
  for (const WeightSpec& weight : plan.graphs.weights) in.weights += align_up(TRY(ir::size_bytes(weight.type, {})));
  return in;
}

// Drops the largest prefill size if the next smaller size already holds max_tokens rows, which no forward exceeds. The
// largest size then only costs arena memory for its padding. Returns whether a size was dropped.
bool drop_oversized(EnginePlan& plan, const Status& why) {
  std::vector<std::int64_t>& sizes = plan.runner.prefill_sizes;
  if (sizes.size() < 2 || sizes[sizes.size() - 2] < plan.runner.max_tokens) return false;
  plan.notes.push_back(fmt::format("the prefill size {} is dropped: {}", sizes.back(), why.message()));
  sizes.pop_back();
  return true;
}

struct Room {
  ShareInputs inputs;
  MemoryReport predicted;
  std::int64_t bytes = 0;  // bytes that graph objects may take
};

Result<Room> find_room(const EngineOptions& options, Device& device, EnginePlan& plan) {
  while (true) {
    RunnerOptions runner = plan.runner;
    // One page is enough for the prediction because no activation depends on the cache's size.
    runner.num_pages.assign(plan.graphs.body.cache_groups.size(), 1);
    Room room;
    room.predicted = TRY(predict_memory(plan.graphs, runner, device));
    room.inputs = TRY(inputs_of(options, device, plan, room.predicted));
    const Result<std::int64_t> bytes = room_for_graphs(room.inputs);
    if (bytes.ok()) {
      room.bytes = *bytes;
      return room;
    }
    if (bytes.status().code() != StatusCode::kResourceExhausted || !drop_oversized(plan, bytes.status()))
      return bytes.status();
  }
}

// Returns the graph sizes of a runner, and the bytes of graphs for each size. `others` are runners that have graphs of
// the same sizes, or of some of them. The bytes of their graphs are spread evenly over the runner's sizes. Null stands
// for a runner that does not exist.
BudgetLadder ladder_of(bool enabled, const RunnerMemory* predicted, bool padding,
                       std::initializer_list<const RunnerMemory*> others = {}) {
  BudgetLadder ladder;
  ladder.padding = padding;
  if (!enabled || predicted == nullptr) return ladder;
  for (const SizeMemory& size : predicted->sizes) {
    ladder.sizes.push_back(size.size);
    ladder.bytes_each = size.graphs.bytes;
  }
  std::int64_t bytes = 0;
  for (const RunnerMemory* other : others)
    if (other != nullptr)
      for (const SizeMemory& size : other->sizes) bytes += size.graphs.bytes;
  if (!ladder.sizes.empty()) ladder.bytes_each += ceil_div(bytes, std::ssize(ladder.sizes));
  return ladder;
}

std::string sizes_list(const std::vector<std::int64_t>& sizes) {
  return sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, " "));
}

// Drops the sizes that exceed the budget or the free memory. Returns the bytes of the graphs that remain.
std::int64_t fit_graphs(std::int64_t budget, const Room& room, EnginePlan& plan) {
  RunnerOptions& runner = plan.runner;
  const bool budgeted = budget > 0 && budget <= room.bytes;
  const BudgetedSizes kept = fit_graph_budget(
      ladder_of(runner.graphs.prefill, room.predicted.runner(RunnerRole::kPrefill), true,
                {room.predicted.runner(RunnerRole::kAdapterPrefill)}),
      ladder_of(runner.graphs.decode, room.predicted.runner(RunnerRole::kDecode), runner.decode_padding,
                {room.predicted.runner(RunnerRole::kAdapterDecode), room.predicted.runner(RunnerRole::kDraftDecode)}),
      ladder_of(!runner.vision.sizes.empty(), room.predicted.runner(RunnerRole::kVision), true),
      budgeted ? budget : room.bytes);
  if (kept.dropped_prefill.empty() && kept.dropped_decode.empty() && kept.dropped_vision.empty()) return kept.bytes;
  plan.notes.push_back(fmt::format(
      "{}: graphs would take {} and may take {}; prefill sizes dropped: {}; decode sizes dropped: {}{}",
      budgeted ? "cuda_graph_memory_budget" : "the memory beside weights and KV cache",
      mib(room.predicted[MemoryUse::kGraphObjects]), mib(budgeted ? budget : room.bytes),
      sizes_list(kept.dropped_prefill), sizes_list(kept.dropped_decode),
      kept.dropped_vision.empty() ? ""
                                  : fmt::format("; the tower's sizes dropped: {}", sizes_list(kept.dropped_vision))));
  // Leaves the switches on even if no size is left. Forwards then report that nothing was captured. With the switches
  // off, they would report that graphs were switched off.
  if (runner.graphs.prefill) runner.prefill_sizes = kept.prefill;
  if (runner.graphs.decode) runner.decode_sizes = kept.decode;
  runner.vision.sizes = kept.vision;
  return kept.bytes;
}

}  // namespace

Result<std::int64_t> room_for_graphs(const ShareInputs& in) {
  const bool accepted = in.fraction == 0 || (in.fraction >= kLeastFraction && in.fraction <= kMostFraction);
  if (!accepted) {  // this includes a NaN
    return invalid_argument(fmt::format("mem_fraction_static: {} is not accepted; accepted: {} to {}", in.fraction,
                                        kLeastFraction, kMostFraction));
  }
  const std::int64_t left = in.capacity - in.taken;
  const std::int64_t reserve = in.fraction != 0 ? 0 : in.reserve;
  if (in.weights > left - reserve) {
    return resource_exhausted(fmt::format(
        "the weights take {}, but only {} of {} are left for them ({} taken before the start, {} kept free); "
        "use a smaller model, a narrower dtype, quantization (int4, fp8){}",
        mib(in.weights), mib(std::max<std::int64_t>(left - reserve, 0)), mib(in.capacity), mib(in.taken), mib(reserve),
        in.on_host ? "" : ", or more devices (tp_size, pp_size)"));
  }
  CacheDemand of_one = in.cache;  // one request has one state and one checkpoint, however long it is
  of_one.max_running = 1;
  std::int64_t cache = cache_bytes(of_one, std::min(in.useful_pages, in.request_pages));
  if (in.on_host) cache = std::min(cache, kCpuMaxKvBytes);
  // If a fraction is given, forwards and graphs share the memory outside the fraction. Otherwise forwards must leave at
  // least one page to the KV cache. Graphs must leave the cache room for one request of the longest context, if
  // forwards leave that much.
  const std::int64_t for_forwards =
      in.fraction != 0 ? left - given_share(in) : left - in.weights - in.reserve - cache_bytes(in.cache, 1);
  if (for_forwards < in.activations) {
    return resource_exhausted(
        fmt::format("forwards need {} beside weights and KV cache, and {} are left of {} ({} of them taken before the "
                    "start, {} kept free); {}",
                    mib(in.activations), mib(std::max<std::int64_t>(for_forwards, 0)), mib(in.capacity), mib(in.taken),
                    mib(in.fraction != 0 ? 0 : in.reserve), kWhatHelps));
  }
  const std::int64_t room = for_forwards - in.activations;
  if (in.fraction != 0) return room;
  return cache <= room ? room - cache : room / kLeastGraphShare;
}

Result<MemoryShares> share_memory(const ShareInputs& in, std::int64_t graph_bytes) {
  MemoryShares shares{.capacity = in.capacity,
                      .taken = in.taken,
                      .weights = in.weights,
                      .activations = in.activations,
                      .graph_objects = graph_bytes};
  std::int64_t budget = static_share(in, graph_bytes) - in.weights;
  if (in.on_host && in.fraction == 0) budget = std::min(budget, kCpuMaxKvBytes);
  const std::int64_t pages = fitting_context_pages(in.cache, in.useful_pages, budget);
  if (pages < 1) {
    return resource_exhausted(
        fmt::format("no memory is left for the KV cache: a page takes {} bytes, {} are available; raise "
                    "mem_fraction_static, or use a smaller model or dtype",
                    cache_bytes(in.cache, 1), std::max<std::int64_t>(budget, 0)));
  }
  shares.cache_groups = sized_groups(in.cache, pages);
  shares.context_tokens = pages * in.cache.limits.page_size;
  for (const CacheGroupOptions& group : shares.cache_groups) shares.kv_cache += group.num_pages * group.page_bytes;
  shares.fraction = static_cast<double>(shares.weights + shares.kv_cache) / static_cast<double>(in.capacity);
  return shares;
}

std::string shares_line(const MemoryShares& shares) {
  return fmt::format(
      "of {}: {} taken before, weights {}, KV cache {} (both {:.3f} of all), forwards {}, graphs {} predicted, {} free",
      mib(shares.capacity), mib(shares.taken), mib(shares.weights), mib(shares.kv_cache), shares.fraction,
      mib(shares.activations), mib(shares.graph_objects), mib(shares.free()));
}

Status plan_memory_shares(const EngineOptions& options, Device& device, EnginePlan& plan) {
  const Room room = TRY(find_room(options, device, plan));
  const std::int64_t graph_bytes = fit_graphs(options.graphs.memory_budget, room, plan);
  plan.memory = TRY(share_memory(room.inputs, graph_bytes));
  if (plan.memory.context_tokens < plan.runner.context_length)
    plan.facts.push_back(fmt::format(
        "requests have at most {} tokens, prompt and output together, of the context's {}, because the KV "
        "cache holds no more; a larger {} raises that",
        plan.memory.context_tokens + (plan.generates() ? 1 : 0), plan.runner.context_length,
        plan.memory.context_tokens == room.inputs.useful_pages * plan.runner.page_size ? "max_total_tokens"
                                                                                       : "mem_fraction_static"));
  if (options.max_total_tokens > 0 && plan.memory.context_tokens < room.inputs.useful_pages * plan.runner.page_size)
    plan.notes.push_back(fmt::format(
        "max_total_tokens is {}, and the KV cache has {} tokens, because its memory holds no more; a larger "
        "mem_fraction_static raises that",
        options.max_total_tokens, plan.memory.context_tokens));
  for (const CacheGroupOptions& group : plan.memory.cache_groups) plan.runner.num_pages.push_back(group.num_pages);
  return ok_status();
}

}  // namespace tessera
