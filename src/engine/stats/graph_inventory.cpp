#include "tessera/engine/stats/graph_inventory.h"

#include <algorithm>
#include <span>

#include "tessera/base/log.h"
#include "tessera/engine/ranks/peers.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

using Sizes = std::span<const std::int64_t>;

bool has_same_graphs(const RunnerInventory& known, const GraphRunner& runner, Sizes full) {
  const CaptureReport& report = runner.report();
  return known.captured == report.captured && std::ranges::equal(known.full, full) &&
         known.dropped.size() == report.dropped.size();
}

bool has_same_binds(const RunnerInventory& known, const GraphRunner& runner) {
  return known.shape_compiles == runner.executable().num_binds();
}

RunnerInventory make_inventory(const GraphRunner& runner, bool enabled, Sizes ladder, Sizes full) {
  const CaptureReport& report = runner.report();
  const Executable& executable = runner.executable();
  RunnerInventory made{.enabled = enabled,
                       .pieces = executable.graph().num_pieces(),
                       .split_ops = executable.graph().num_split_ops(),
                       .graphs = executable.num_graphs(),
                       .general_compiles = executable.compile_counts().compiled,
                       .cached_programs = executable.compile_counts().loaded,
                       .shape_compiles = executable.num_binds(),
                       .captured = report.captured,
                       .full = {full.begin(), full.end()},
                       .capture_seconds = report.seconds};
  for (const auto& [size, why] : report.dropped) made.dropped.emplace_back(size, why.message());
  if (!enabled) return made;
  for (const std::int64_t size : ladder) {
    const bool was_dropped = std::any_of(made.dropped.begin(), made.dropped.end(),
                                         [&](const auto& dropped) { return dropped.first == size; });
    if (!was_dropped && !std::binary_search(made.captured.begin(), made.captured.end(), size))
      made.pending.push_back(size);
  }
  return made;
}

bool same_tower(const std::optional<RunnerInventory>& known, const VisionRunner* tower) {
  if (tower == nullptr || !known) return tower == nullptr && !known;
  // Graphs of exact sizes are not compared here. They change only when a size is bound, and has_same_binds() notices
  // that.
  const bool same_graphs = tower->options().exact_graphs > 0 || has_same_graphs(*known, tower->runner(), {});
  return same_graphs && has_same_binds(*known, tower->runner());
}

// Returns the tower's graphs, or nothing if there is no tower. A graph of an exact size is captured when this size
// first appears, so such graphs are never pending.
std::optional<RunnerInventory> tower_inventory(const VisionRunner* tower) {
  if (tower == nullptr) return std::nullopt;
  const VisionOptions& options = tower->options();
  RunnerInventory made = make_inventory(tower->runner(), options.graphs, options.sizes, {});
  if (options.exact_graphs > 0) made.captured = tower->exact_sizes();
  return made;
}

}  // namespace

// Asks the other ranks for their memory reports. If they do not answer, keeps the last known reports and returns no
// error, because the next forward will report the failure.
void GraphInventoryCache::ask_peers(Peers& peers) {
  Result<std::vector<MemoryReport>> reports = peers.memory();
  if (reports.ok()) {
    rank_memory_ = *std::move(reports);
  } else {
    log_warn("engine", "the memory of the other ranks is not known: {}", reports.status().to_string());
  }
}

std::shared_ptr<const GraphInventory> GraphInventoryCache::of(const ModelRunner& runner, Peers& peers) {
  const DispatchTable& table = runner.dispatch_table();
  const bool same_graphs =
      inventory_ != nullptr && has_same_graphs(inventory_->prefill, runner.prefill(), table.full_sizes) &&
      has_same_graphs(inventory_->decode, runner.decode(), {}) &&
      has_same_graphs(inventory_->head, runner.head(), {}) && embedding_rows_ == runner.embedding_rows() &&
      same_tower(inventory_->vision, runner.vision());
  if (same_graphs && has_same_binds(inventory_->prefill, runner.prefill()) &&
      has_same_binds(inventory_->decode, runner.decode()) && has_same_binds(inventory_->head, runner.head()) &&
      inventory_->memory[MemoryUse::kCommunication] == communication_bytes(runner.model()))
    return inventory_;
  embedding_rows_ = runner.embedding_rows();
  const RunnerOptions& options = runner.options();
  if (!same_graphs) ask_peers(peers);
  inventory_ = std::make_shared<GraphInventory>(GraphInventory{
      .prefill = make_inventory(runner.prefill(), table.graphs_enabled && table.prefill_enabled, options.prefill_sizes,
                                table.full_sizes),
      .decode = make_inventory(runner.decode(), table.graphs_enabled && table.decode_enabled, options.decode_sizes, {}),
      .head = make_inventory(runner.head(), /*enabled=*/false, {}, {}),
      .vision = tower_inventory(runner.vision()),
      .memory = runner.memory(),
      .predicted_memory = runner.predicted_memory(),
      .ranks = peers.ranks(),
      .rank_memory = rank_memory_,
      .max_tokens = options.max_tokens});
  return inventory_;
}

}  // namespace tessera
