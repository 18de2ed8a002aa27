#include "tessera/server/metrics/graph_metrics.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

namespace tessera {
namespace {

using Samples = std::vector<MetricSample>;

std::string text(std::string_view name) { return std::string(name); }

Samples by_runner(const GraphInventory& graphs, const std::function<std::int64_t(const RunnerInventory&)>& number) {
  Samples samples;
  for (const auto& [name, runner] : {std::pair<const char*, const RunnerInventory*>{"prefill", &graphs.prefill},
                                     {"decode", &graphs.decode},
                                     {"head", &graphs.head}})
    samples.push_back({{{"runner", name}}, static_cast<double>(number(*runner))});
  if (graphs.vision) samples.push_back({{{"runner", "vision"}}, static_cast<double>(number(*graphs.vision))});
  return samples;
}

void add_inventory(MetricFamilies& families, const GraphInventory& graphs) {
  const auto gauges = [&](const char* name, const char* help, auto member) {
    families.gauges(name, help, by_runner(graphs, member));
  };
  gauges("tessera:graph_pieces", "Pieces that a runner's graph is cut into.",
         [](const RunnerInventory& runner) { return runner.pieces; });
  gauges("tessera:graph_split_ops", "Operators that run between pieces.",
         [](const RunnerInventory& runner) { return runner.split_ops; });
  gauges("tessera:captured_sizes", "Sizes that are captured.",
         [](const RunnerInventory& runner) { return std::ssize(runner.captured); });
  gauges("tessera:full_sizes", "Captured sizes that are replayed as one graph where that was measured to be faster.",
         [](const RunnerInventory& runner) { return std::ssize(runner.full); });
  gauges("tessera:captured_graphs", "Recorded graphs: of each size one for each piece that has kernels.",
         [](const RunnerInventory& runner) { return runner.graphs; });
  gauges("tessera:sizes_to_come", "Sizes of the ladder that are pending: not captured yet.",
         [](const RunnerInventory& runner) { return std::ssize(runner.pending); });
  gauges("tessera:dropped_sizes", "Sizes that were given up because they failed.",
         [](const RunnerInventory& runner) { return std::ssize(runner.dropped); });
  families.counters("tessera:general_compiles_total", "Programs compiled for any size.",
                    by_runner(graphs, [](const RunnerInventory& runner) { return runner.general_compiles; }));
  families.counters("tessera:program_cache_hits_total", "Programs loaded from the profile cache instead of compiled.",
                    by_runner(graphs, [](const RunnerInventory& runner) { return runner.cached_programs; }));
  families.counters("tessera:shape_compiles_total", "Sizes bound to kernels and addresses, captured or not.",
                    by_runner(graphs, [](const RunnerInventory& runner) { return runner.shape_compiles; }));
}

void add_forwards(MetricFamilies& families, const ForwardCounters& forwards) {
  Samples replays;
  std::array<std::int64_t, 3> tokens{};  // indexed by RunnerKind
  std::map<std::pair<RunnerKind, std::int64_t>, std::int64_t> padding;
  for (const auto& [key, count] : forwards.by_key) {
    tokens[static_cast<std::size_t>(key.runner)] += count.tokens;
    if (key.runner == RunnerKind::kEager) continue;
    padding[{key.runner, key.size}] += count.padding;
    replays.push_back({{{"runner", text(runner_kind_name(key.runner))},
                        {"bucket", std::to_string(key.size)},
                        {"reason", text(reason_name(key.reason))}},
                       static_cast<double>(count.forwards)});
  }
  families.counters("tessera:graph_replays_total", "Forwards that replayed a captured graph, by its size.", replays);

  Samples reasons;
  for (int r = 0; r < kNumReasons; ++r) {
    const auto reason = static_cast<Reason>(r);
    reasons.push_back({{{"reason", text(reason_name(reason))}}, static_cast<double>(forwards.forwards(reason))});
  }
  families.counters("tessera:forwards_total", "Forwards, by why they ran as they did.", reasons);

  Samples by_kind;
  for (const RunnerKind kind : {RunnerKind::kEager, RunnerKind::kPrefill, RunnerKind::kDecode})
    by_kind.push_back(
        {{{"runner", text(runner_kind_name(kind))}}, static_cast<double>(tokens[static_cast<std::size_t>(kind)])});
  families.counters("tessera:forward_tokens_total", "Tokens of all forwards, by what ran them.", by_kind);
  const auto eager = static_cast<double>(tokens[static_cast<std::size_t>(RunnerKind::kEager)]);
  families.gauge("tessera:replayed_token_share", "Share of all tokens that graphs computed; 1 before the first one.",
                 {}, forwards.tokens > 0 ? 1 - eager / static_cast<double>(forwards.tokens) : 1);

  Samples padded;
  for (const auto& [bucket, rows] : padding)
    padded.push_back({{{"runner", text(runner_kind_name(bucket.first))}, {"bucket", std::to_string(bucket.second)}},
                      static_cast<double>(rows)});
  families.counters("tessera:padded_tokens_total", "Rows computed for nothing, to fill a captured size.", padded);
}

void add_tower(MetricFamilies& families, const TowerCounts& forwards) {
  Samples reasons;
  for (int r = 0; r < kNumVisionReasons; ++r) {
    const auto reason = static_cast<VisionReason>(r);
    reasons.push_back(
        {{{"reason", text(vision_reason_name(reason))}}, static_cast<double>(forwards.of(reason).forwards)});
  }
  families.counters("tessera:tower_forwards_total", "Forwards of the vision tower, by why they ran as they did.",
                    reasons);
  Samples replays;
  Samples padded;
  for (const auto& [key, count] : forwards.by_key()) {
    if (!is_replay(key.reason)) continue;
    const std::vector<std::pair<std::string, std::string>> labels = {{"bucket", std::to_string(key.size)},
                                                                     {"reason", text(vision_reason_name(key.reason))}};
    replays.push_back({labels, static_cast<double>(count.forwards)});
    padded.push_back({labels, static_cast<double>(count.padding)});
  }
  families.counters("tessera:tower_graph_replays_total",
                    "Forwards of the vision tower that replayed a graph, by budget.", replays);
  families.counters("tessera:tower_padded_patches_total", "Patches computed for nothing, to fill a budget.", padded);
}

// Adds the histogram of the number of tokens in forwards that are not pure decodes. Its last bucket is the bucket of
// `max_tokens`, the largest possible number.
void add_token_histogram(MetricFamilies& families, const TokenHistogram& tokens, std::int64_t max_tokens) {
  std::vector<MetricBucket> buckets;
  std::int64_t so_far = 0;
  for (int b = 0; b <= TokenHistogram::bucket_of(max_tokens); ++b) {
    so_far += tokens.count(b);
    buckets.push_back({.limit = static_cast<double>(TokenHistogram::limit(b)), .count = so_far});
  }
  families.histogram("tessera:prefill_tokens", "Tokens of a forward that is no pure decode.", buckets,
                     static_cast<double>(tokens.sum()));
}

Samples device_memory(const MemoryReport& memory) {
  Samples samples;
  for (const auto& [use, bytes] : memory.device_entries())
    samples.push_back({{{"kind", text(memory_use_name(use))}}, static_cast<double>(bytes)});
  return samples;
}

void add_memory(MetricFamilies& families, const GraphInventory& graphs) {
  families.gauges("tessera:memory_bytes", "Device memory, by what takes it.", device_memory(graphs.memory));
  families.gauges("tessera:memory_predicted_bytes",
                  "Device memory that was predicted before any was taken, by what takes it.",
                  device_memory(graphs.predicted_memory));
  Samples of_ranks;
  for (std::size_t i = 0; i < graphs.rank_memory.size(); ++i) {
    for (MetricSample& sample : device_memory(graphs.rank_memory[i])) {
      sample.labels.insert(sample.labels.begin(), {"rank", std::to_string(i + 1)});
      of_ranks.push_back(std::move(sample));
    }
  }
  families.gauge("tessera:tp_ranks", "Ranks that run each forward together, of all stages.", {},
                 static_cast<double>(graphs.ranks));
  if (!of_ranks.empty())
    families.gauges("tessera:rank_memory_bytes", "Device memory of the ranks beside rank 0, by what takes it.",
                    of_ranks);
  Samples of_sizes;
  for (const RunnerMemory& runner : graphs.memory.runners) {
    for (const SizeMemory& size : runner.sizes)
      of_sizes.push_back({{{"runner", text(runner_role_name(runner.role))}, {"bucket", std::to_string(size.size)}},
                          static_cast<double>(size.graphs.bytes)});
  }
  families.gauges("tessera:graph_bytes", "Memory of graph objects, by captured size.", of_sizes);
}

}  // namespace

void add_graph_metrics(MetricFamilies& families, const EngineStats& stats) {
  add_inventory(families, *stats.graphs);
  add_forwards(families, stats.forwards);
  families.counter("tessera:profile_cache_hits_total", "Entries of earlier starts that this start found on disk.", {},
                   stats.profile_cache_hits);
  families.counter("tessera:split_chunks_total", "Prompts cut so that a forward fills a captured size.", {},
                   stats.split_chunks);
  add_token_histogram(families, stats.forwards.prefill_tokens, stats.graphs->max_tokens);
  if (stats.graphs->vision) add_tower(families, stats.images.by_reason);
  add_memory(families, *stats.graphs);
}

}  // namespace tessera
