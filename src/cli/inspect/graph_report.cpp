#include "tessera/cli/inspect/graph_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tessera/cli/table.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera::cli {
namespace {

// Returns the captured sizes that forwards of this runner replayed, ascending.
std::vector<std::int64_t> replayed_sizes(RunnerKind runner, const std::vector<ForwardRecord>& forwards) {
  std::set<std::int64_t> sizes;
  for (const ForwardRecord& forward : forwards)
    if (forward.runner == runner) sizes.insert(forward.size);
  return {sizes.begin(), sizes.end()};
}

Json runner_json(const GraphRunner& runner, bool enabled, const std::vector<std::int64_t>& replayed) {
  const CaptureReport& report = runner.report();
  Json json = Json::object();
  json.set("enabled", enabled).set("captured_sizes", std::ssize(report.captured));
  json.set("sizes", Json::Array(replayed.begin(), replayed.end()));
  Json dropped = Json::array();
  for (const auto& [size, status] : report.dropped) {
    Json entry = Json::object();
    entry.set("size", size).set("error", status.message());
    dropped.push_back(std::move(entry));
  }
  json.set("dropped", std::move(dropped));
  json.set("nodes", report.graphs.nodes).set("graph_bytes", report.graphs.bytes).set("seconds", report.seconds);
  return json;
}

// Returns the captured sizes that the vision tower's forwards replayed, ascending.
std::vector<std::int64_t> replayed_sizes(const VisionRunner& tower) {
  std::set<std::int64_t> sizes;
  for (const auto& [key, count] : tower.counters().forwards.by_key())
    if (is_replay(key.reason)) sizes.insert(key.size);
  return {sizes.begin(), sizes.end()};
}

Json tower_json(const VisionRunner& tower) {
  Json forwards = Json::array();
  for (const auto& [key, count] : tower.counters().forwards.by_key()) {
    Json entry = Json::object();
    entry.set("size", key.size).set("reason", vision_reason_name(key.reason)).set("count", count.forwards);
    entry.set("images", count.images).set("patches", count.patches).set("padding", count.padding);
    forwards.push_back(std::move(entry));
  }
  Json json = runner_json(tower.runner(), tower.options().graphs, replayed_sizes(tower));
  json.set("forwards", std::move(forwards));
  return json;
}

// Returns lines that describe how the tower computed images.
std::string tower_lines(const VisionRunner& tower) {
  std::string text;
  for (const auto& [key, count] : tower.counters().forwards.by_key())
    text += fmt::format("           {} of {} patches: {}\n", plural(count.forwards, "forward"),
                        count_text(count.patches), vision_reason_text(key.reason));
  return text;
}

Json memory_json(const MemoryReport& memory) {
  Json json = Json::object();
  for (const auto& [use, bytes] : memory.entries()) json.set(std::string(memory_use_name(use)), bytes);
  return json;
}

Json sizes_json(const RunnerMemory& memory, const std::vector<std::int64_t>& replayed) {
  Json array = Json::array();
  for (const SizeMemory& size : memory.sizes) {
    if (!std::ranges::binary_search(replayed, size.size)) continue;
    Json json = Json::object();
    json.set("size", size.size).set("graphs", size.graphs.graphs).set("nodes", size.graphs.nodes);
    json.set("graph_bytes", size.graphs.bytes);
    array.push_back(std::move(json));
  }
  return array;
}

std::string runner_line(const GraphRunner& runner, bool enabled) {
  if (!enabled) return "off";
  const CaptureReport& report = runner.report();
  std::string line = fmt::format("{}, captured in {} s", sizes_text(report.captured), number_text(report.seconds));
  if (!report.dropped.empty()) line += fmt::format("; {} dropped", plural(std::ssize(report.dropped), "size"));
  return line;
}

}  // namespace

std::vector<ForwardGroup> group_forwards(const std::vector<ForwardRecord>& forwards) {
  std::vector<ForwardGroup> groups;
  for (const ForwardRecord& f : forwards) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const ForwardGroup& g) {
      return g.each.decode == f.decode && g.each.runner == f.runner && g.each.size == f.size &&
             g.each.reason == f.reason;
    });
    if (group == groups.end()) {
      groups.push_back({.each = f, .count = 1});
      continue;
    }
    ++group->count;
    group->each.tokens += f.tokens;
    group->each.padding += f.padding;
    group->each.ms += f.ms;
  }
  return groups;
}

Json graphs_json(const Engine& engine, const std::vector<ForwardRecord>& forwards) {
  const ModelRunner& runner = engine.runner();
  const StitchingGraph& stitching = runner.prefill().executable().graph();
  Json json = Json::object();
  json.set("pieces", stitching.num_pieces()).set("split_ops", stitching.num_split_ops());
  const std::vector<std::int64_t> prefill_sizes = replayed_sizes(RunnerKind::kPrefill, forwards);
  const std::vector<std::int64_t> decode_sizes = replayed_sizes(RunnerKind::kDecode, forwards);
  json.set("prefill", runner_json(runner.prefill(), runner.options().graphs.prefill, prefill_sizes));
  json.set("decode", runner_json(runner.decode(), runner.options().graphs.decode, decode_sizes));
  if (const VisionRunner* tower = runner.vision()) json.set("vision", tower_json(*tower));

  Json groups = Json::array();
  for (const ForwardGroup& group : group_forwards(forwards)) {
    Json entry = Json::object();
    entry.set("phase", group.each.decode ? "decode" : "prefill");
    entry.set("runner", runner_kind_name(group.each.runner)).set("size", group.each.size);
    entry.set("reason", reason_name(group.each.reason)).set("count", group.count);
    entry.set("tokens", group.each.tokens).set("padding", group.each.padding).set("ms", group.each.ms);
    groups.push_back(std::move(entry));
  }
  json.set("forwards", std::move(groups));

  const ForwardCounters& counters = runner.counters();
  Json reasons = Json::object();
  for (int r = 0; r < kNumReasons; ++r) {
    const auto reason = static_cast<Reason>(r);
    if (const std::int64_t count = counters.forwards(reason); count != 0)
      reasons.set(std::string(reason_name(reason)), count);
  }
  json.set("reasons", std::move(reasons)).set("tokens", counters.tokens).set("padding", counters.padded_tokens);

  const MemoryReport taken = runner.memory();
  Json memory = memory_json(taken);
  memory.set("available", taken.available).set("predicted", memory_json(runner.predicted_memory()));
  Json by_runner = Json::object();
  for (const RunnerMemory& each : taken.runners) {
    const bool is_tower = each.role == RunnerRole::kVision && runner.vision() != nullptr;
    const std::vector<std::int64_t> sizes = is_tower                           ? replayed_sizes(*runner.vision())
                                            : each.role == RunnerRole::kDecode ? decode_sizes
                                                                               : prefill_sizes;
    by_runner.set(std::string(runner_role_name(each.role)), sizes_json(each, sizes));
  }
  memory.set("runners", std::move(by_runner));
  json.set("memory_bytes", std::move(memory));
  Json notes = Json::array();
  for (const std::string& note : engine.notes()) notes.push_back(note);
  json.set("notes", std::move(notes));
  return json;
}

std::string graphs_text(const Engine& engine, const std::vector<ForwardRecord>& forwards) {
  const ModelRunner& runner = engine.runner();
  const GraphSwitches& on = runner.options().graphs;
  const StitchingGraph& stitching = runner.prefill().executable().graph();
  using enum MemoryUse;
  const MemoryReport memory = runner.memory();
  const MemoryReport& predicted = runner.predicted_memory();
  std::string text = fmt::format("  model    {}, {:.1f} M parameters, loaded in {} s\n", engine.config().architecture,
                                 static_cast<double>(engine.parameters()) / 1e6, number_text(engine.load_seconds()));
  text += fmt::format("  forward  {} and {} between them\n", plural(stitching.num_pieces(), "piece"),
                      plural(stitching.num_split_ops(), "split op"));
  text += fmt::format("  prefill  {}\n", runner_line(runner.prefill(), on.prefill));
  text += fmt::format("  decode   {}\n", runner_line(runner.decode(), on.decode));
  if (const VisionRunner* tower = runner.vision())
    text +=
        fmt::format("  vision   {}\n{}", runner_line(tower->runner(), tower->options().graphs), tower_lines(*tower));
  text += fmt::format("  memory   weights {}, KV cache {}, arena {} shared by all graphs, graph objects {}\n",
                      bytes_text(memory[kWeights]), bytes_text(memory[kKvCache]), bytes_text(memory[kArena]),
                      bytes_text(memory[kGraphObjects]));
  text +=
      fmt::format("           predicted: arena {}, graph objects {}; workspace {}, static buffers {}, {} free\n\n",
                  bytes_text(predicted[kArena]), bytes_text(predicted[kGraphObjects]), bytes_text(memory[kWorkspace]),
                  bytes_text(memory[kStaticInputs] + memory[kPlans]), bytes_text(memory.available));

  Table table({"forward", ">count", ">tokens", "graph", "why", ">padding", ">ms each"});
  for (const ForwardGroup& group : group_forwards(forwards)) {
    const ForwardRecord& f = group.each;
    const std::string graph =
        f.runner == RunnerKind::kEager ? "eager" : fmt::format("{} {}", runner_kind_name(f.runner), f.size);
    table.add({f.decode ? "decode" : "prefill", count_text(group.count), count_text(f.tokens), graph,
               std::string(reason_text(f.reason)), count_text(f.padding),
               number_text(f.ms / static_cast<double>(group.count))});
  }
  return text + table.text();
}

}  // namespace tessera::cli
