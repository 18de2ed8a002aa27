#include "tessera/engine/graph_inventory.h"

#include <algorithm>
#include <span>

#include "tessera/runner/rank_group.h"

namespace tessera {
namespace {

using Sizes = std::span<const std::int64_t>;

bool is_of_now(const RunnerInventory& known, const GraphRunner& runner, Sizes full) {
  const CaptureReport& report = runner.report();
  return known.shape_compiles == runner.executable().num_binds() && known.captured == report.captured &&
         std::ranges::equal(known.full, full) && known.dropped.size() == report.dropped.size();
}

RunnerInventory make_inventory(const GraphRunner& runner, bool enabled, Sizes ladder, Sizes full) {
  const CaptureReport& report = runner.report();
  const Executable& executable = runner.executable();
  RunnerInventory made{.enabled = enabled,
                       .pieces = executable.graph().num_pieces(),
                       .split_ops = executable.graph().num_split_ops(),
                       .graphs = executable.num_graphs(),
                       // Each part is compiled by itself, split operators too.
                       .general_compiles = executable.graph().num_pieces() + executable.graph().num_split_ops(),
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

}  // namespace

std::shared_ptr<const GraphInventory> GraphInventoryCache::of(const ModelRunner& runner) {
  const DispatchTable& table = runner.dispatch_table();
  if (inventory_ != nullptr && is_of_now(inventory_->prefill, runner.prefill(), table.full_sizes) &&
      is_of_now(inventory_->decode, runner.decode(), {}) && is_of_now(inventory_->head, runner.head(), {}) &&
      embedding_rows_ == runner.embedding_rows())
    return inventory_;
  embedding_rows_ = runner.embedding_rows();
  const RunnerOptions& options = runner.options();
  inventory_ = std::make_shared<GraphInventory>(GraphInventory{
      .prefill = make_inventory(runner.prefill(), table.graphs_enabled && table.prefill_enabled, options.prefill_sizes,
                                table.full_sizes),
      .decode = make_inventory(runner.decode(), table.graphs_enabled && table.decode_enabled, options.decode_sizes, {}),
      .head = make_inventory(runner.head(), /*enabled=*/false, {}, {}),
      .memory = runner.memory(),
      .predicted_memory = runner.predicted_memory(),
      .rank_memory = options.ranks == nullptr ? std::vector<MemoryReport>() : options.ranks->memory(),
      .max_tokens = options.max_tokens});
  return inventory_;
}

}  // namespace tessera
