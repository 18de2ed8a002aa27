#include "tessera/cli/inspect/explanation_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "tessera/cli/table.h"
#include "tessera/model/gguf/tensor_names.h"
#include "tessera/ops/cache/cache_type.h"

namespace tessera::cli {
namespace {

struct ExplainedCount {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

std::string ops_text(const ir::Graph& graph) {
  std::string text;
  for (const ir::Node& node : graph.nodes) text += (text.empty() ? "" : " ") + node.op;
  return text;
}

std::string values_text(const ir::Graph& graph, const std::vector<ir::ValueId>& values) {
  std::string text;
  for (const ir::ValueId id : values)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", graph.value(id).name, graph.value(id).type.to_string());
  return text.empty() ? "-" : text;
}

// Returns a text such as "; 4 ranks, of which this is rank 0; every 2 of them share 4 of the 8 experts".
std::string ranks_text(const Explanation& e) {
  const ModelOptions& model = e.plan.model;
  if (model.tp_size * model.pp_size == 1) return "";
  std::string text = fmt::format("; {} ranks, of which this is rank 0", model.tp_size * model.pp_size);
  const LayerRange& own = e.plan.graphs.own_layers;
  if (model.pp_size > 1)
    text += fmt::format("; {} stages, of which this is the last, with layers {} to {}", model.pp_size, own.begin,
                        own.end - 1);
  if (model.ep_size == 1) return text;
  const std::int64_t experts = e.plan.config.moe->num_experts;
  const int sharing = model.tp_size / model.ep_size;
  text += sharing == 1 ? "; each has" : fmt::format("; every {} of them share", sharing);
  return text + fmt::format(" {} of the {} experts", experts / model.ep_size, experts);
}

std::string model_text(const Explanation& e) {
  const ModelConfig& config = e.plan.config;
  const auto millions = [](std::int64_t parameters) {
    return fmt::format("{:.1f} M", static_cast<double>(parameters) / 1e6);
  };
  const std::string drafts =
      e.plan.draft_parameters == 0 ? "" : fmt::format(" (and {} that draft)", millions(e.plan.draft_parameters));
  return fmt::format("{}: {}, {} layers, {} parameters{}, {} on {}{}\n\n", e.model_path, config.architecture,
                     config.num_hidden_layers, millions(e.plan.parameters), drafts, ir::dtype_name(e.plan.model.dtype),
                     e.device, ranks_text(e));
}

// Shows every piece and split operator. Repeated layers are shown once.
std::string parts_text(const StitchingGraph& stitching) {
  std::string text = fmt::format("Prefill: {} and {}\n", plural(stitching.num_pieces(), "piece"),
                                 plural(stitching.num_split_ops(), "split op"));
  std::int64_t repeats = 0;
  for (std::size_t i = 0; i < stitching.parts.size(); ++i) {
    const Part& part = stitching.parts[i];
    const std::string ops = ops_text(part.graph);
    if (i >= 2 && ops == ops_text(stitching.parts[i - 2].graph) && i + 1 < stitching.parts.size()) {
      ++repeats;
      continue;
    }
    if (repeats > 0) text += fmt::format("  … {} like the two above\n", plural(repeats, "part"));
    repeats = 0;
    text += fmt::format("  {}\n", part.name);
    if (part.kind == Part::Kind::kPiece) text += fmt::format("    ops  {}\n", ops);
    text += fmt::format("    in   {}\n    out  {}\n", values_text(part.graph, part.graph.inputs),
                        values_text(part.graph, part.graph.outputs));
  }
  for (const std::string& note : stitching.notes) text += fmt::format("  note: {}\n", note);
  return text;
}

// Shows one row for each pass, with sums over all graphs.
std::string passes_text(const Explanation& e) {
  Table table({"pass", ">nodes before", ">after", "changed", ">ms"});
  for (const Pass& pass : e.plan.runner.registry->passes) {
    std::int64_t before = 0;
    std::int64_t after = 0;
    double ms = 0;
    std::string changed;
    bool ran = false;
    for (const PassReport& report : e.plan.passes) {
      if (report.pass != pass.name) continue;
      ran = true;
      before += report.nodes_before;
      after += report.nodes_after;
      ms += report.ms;
      if (report.changed) changed += (changed.empty() ? "" : ", ") + report.graph;
    }
    if (!ran) {
      table.add({std::string(pass.name), "", "", "switched off", ""});
      continue;
    }
    table.add({std::string(pass.name), count_text(before), count_text(after), changed.empty() ? "nothing" : changed,
               number_text(ms)});
  }
  return table.empty() ? "" : "Passes\n" + table.text() + "\n";
}

// Shows the types of a GGUF file's tensors. Tensors of all layers share a row.
std::string tensors_text(const Explanation& e) {
  if (e.tensors.empty()) return "";
  std::vector<std::string> names;  // in the order of the file
  std::map<std::string, std::map<std::string, ExplainedCount>> types;
  for (const ExplainedTensor& tensor : e.tensors) {
    const GgufTensorName name = parse_tensor_name(tensor.name);
    const std::string pattern = name.layer ? fmt::format("blk.*.{}", name.rest) : tensor.name;
    if (!types.contains(pattern)) names.push_back(pattern);
    ExplainedCount& count = types[pattern][tensor.type];
    ++count.tensors;
    count.bytes += tensor.bytes;
  }
  Table table({"tensors", "types", ">bytes"});
  for (const std::string& name : names) {
    std::string shown = name;
    std::ranges::replace_if(
        shown, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');  // a file may hold any
    std::string text;
    std::int64_t bytes = 0;
    for (const auto& [type, count] : types[name]) {
      text += text.empty() ? type : ", " + type;
      if (count.tensors > 1) text += fmt::format(" × {}", count.tensors);
      bytes += count.bytes;
    }
    table.add({shown, text, bytes_text(bytes)});
  }
  return "Tensors of the file\n" + table.text() + "\n";
}

// Describes the vision tower. Returns "" if the model reads no images.
std::string vision_text(const Explanation& e) {
  if (!e.plan.graphs.vision) return "";
  const VisionOptions& vision = e.plan.runner.vision;
  const std::string ops = plural(std::ssize(e.plan.graphs.vision->graph.nodes), "op");
  std::string sizes = vision.graphs ? "none fits the memory" : "off";
  if (!vision.sizes.empty()) sizes = fmt::format("{}", fmt::join(vision.sizes, " "));
  if (vision.exact_graphs > 0) sizes = fmt::format("those of images, the last {}", vision.exact_graphs);
  return fmt::format("  vision, patches    {}\n  of a tower of {}, at most {} patches in a forward\n", sizes, ops,
                     vision.max_patches);
}

std::string ladders_text(const Explanation& e) {
  const RunnerOptions& runner = e.plan.runner;
  const auto line = [](bool on, const std::vector<std::int64_t>& sizes) {
    return on && !sizes.empty() ? fmt::format("{}", fmt::join(sizes, " ")) : std::string("off");
  };
  return fmt::format("Decode: one graph of {}\n\nSizes\n  prefill, tokens    {}{}\n  decode, rows       {}{}\n{}\n",
                     plural(e.decode_ops, "op"), line(runner.graphs.prefill, runner.prefill_sizes),
                     e.full_sizes.empty() ? "" : "\n   as one graph      " + line(runner.graphs.prefill, e.full_sizes),
                     line(runner.graphs.decode, runner.decode_sizes),
                     runner.decode_padding ? "" : "\n  decode graphs serve exact sizes only", vision_text(e));
}

// Describes speculative decoding. Returns "" if the engine does not use it.
std::string drafts_text(const Explanation& e) {
  const DraftOptions& drafts = e.plan.drafts;
  if (!drafts.any()) return "";
  std::string text = "Drafts\n";
  const std::string of_text = fmt::format("from a request's own text, up to {} in a step", drafts.most_tokens);
  if (!e.draft_layer) return text + fmt::format("  made               {}\n\n", of_text);
  const ExplainedDraftLayer& layer = *e.draft_layer;
  text += fmt::format("  made               by {}, up to {} in a step; {}\n",
                      drafts.source == DraftSource::kEagle   ? "the EAGLE-3 layer of " + drafts.model_path
                      : drafts.source == DraftSource::kModel ? "the draft model " + drafts.model_path
                                                             : "the checkpoint's next-token layer",
                      drafts.layer_steps, of_text);
  text += fmt::format("  {:<18} {}, run one by one between forwards; {} of weights of its own\n",
                      drafts.source == DraftSource::kModel ? "body" : "layer", plural(layer.layer_ops, "op"),
                      bytes_text(layer.own_bytes));
  text += fmt::format("  head               {}, {} of {} ids\n", plural(layer.head_ops, "op"),
                      count_text(layer.head_ids), count_text(e.plan.config.vocab_size));
  return text + fmt::format("  hidden states      {} for {}\n\n", bytes_text(layer.hidden_bytes),
                            plural(layer.hidden_rows, "row"));
}

std::string rules_text(const Explanation& e) {
  std::string text = "Rules that turn piecewise graphs off\n";
  for (const Rule& rule : piecewise_rules())
    text += fmt::format("  {:<30} {}\n", rule.name, rule_applied(e, rule) ? rule.message : "does not apply");
  for (const std::string& fact : e.plan.facts) text += fmt::format("  note: {}\n", fact);
  for (const std::string& note : e.plan.notes) {
    const bool is_rule = std::any_of(piecewise_rules().begin(), piecewise_rules().end(),
                                     [&](const Rule& rule) { return note.starts_with(rule.message); });
    if (!is_rule) text += fmt::format("  note: {}\n", note);
  }
  return text + "\n";
}

void add_needs(const RunnerMemory& runner, Table& table) {
  // Shows the largest size, the smallest, and evenly spaced sizes between them.
  const std::size_t step = std::max<std::size_t>(runner.sizes.size() / 6, 1);
  for (std::size_t i = runner.sizes.size(); i > 0; i -= std::min(i, step)) {
    const SizeMemory& n = runner.sizes[i - 1];
    table.add({std::string(runner_role_name(runner.role)), count_text(n.size), bytes_text(n.need.arena_bytes),
               bytes_text(n.need.lower_bound_bytes), bytes_text(n.need.unshared_bytes),
               bytes_text(n.need.workspace_bytes), count_text(n.graphs.graphs), bytes_text(n.graphs.bytes)});
  }
}

std::string memory_text(const Explanation& e) {
  const RunnerOptions& runner = e.plan.runner;
  using enum MemoryUse;
  const MemoryReport& memory = e.memory;
  std::string text = "Memory\n";
  text += fmt::format("  weights            {}\n", bytes_text(e.weight_bytes));
  const MemoryShares& shares = e.plan.memory;
  text +=
      fmt::format("  KV cache           {} for {} tokens in pages of {}, as {}\n", bytes_text(shares.kv_cache),
                  count_text(shares.context_tokens), runner.page_size, cache_type_name(e.plan.model.kv_cache_type()));
  for (const CacheGroupOptions& group : shares.cache_groups)
    text += fmt::format("    {:<16} {}: {} of {} each\n", group.name, bytes_text(group.num_pages * group.page_bytes),
                        plural(group.num_pages, group.is_state() ? "slot" : "page"), bytes_text(group.page_bytes));
  text += fmt::format("  arena              {}, shared by all sizes of both runners ({} plan)\n",
                      bytes_text(memory[kArena]), memory_plan_kind_name(runner.memory_plan));
  text += fmt::format("  workspace          {}\n", bytes_text(memory[kWorkspace]));
  text += fmt::format("  static buffers     {} of inputs, {} of attention, {} of results on the host\n",
                      bytes_text(memory[kStaticInputs]), bytes_text(memory[kPlans]), bytes_text(memory[kStepResults]));
  text += fmt::format("  communication      {} with other ranks\n", bytes_text(memory[kCommunication]));
  text += fmt::format("  graph objects      {} predicted\n", bytes_text(memory[kGraphObjects]));
  text += fmt::format("  free               {} of {}; weights and KV cache are {:.3f} of it\n\n",
                      bytes_text(e.plan.memory.free()), bytes_text(e.plan.memory.capacity), e.plan.memory.fraction);
  Table table({"runner", ">size", ">arena", ">lower bound", ">unshared", ">workspace", ">graphs", ">graph objects"});
  for (const RunnerMemory& each : memory.runners) add_needs(each, table);
  return table.empty() ? text : text + table.text();
}

// Shows the measured schedules of generated kernels. A measurement in which the device's default schedule was the
// fastest is counted but not shown.
std::string schedules_text(const Explanation& e) {
  if (e.schedules.empty()) return "";
  Table table({"kernel", ">rows", ">schedule", ">us", ">against", ">us"});
  std::int64_t stayed = 0;
  for (const ExplainedSchedule& each : e.schedules) {
    const MeasuredSchedules& m = each.measured;
    const auto& [own, own_us] = m.us.front();
    if (m.chosen == own) {
      ++stayed;
      continue;
    }
    for (const auto& [schedule, us] : m.us)
      if (schedule == m.chosen)
        table.add({m.name, count_text(each.rows), count_text(schedule), number_text(us), count_text(own),
                   number_text(own_us)});
  }
  return fmt::format("\nSchedules of generated kernels, as measured: {} of {} are the device's own\n{}", stayed,
                     e.schedules.size(), table.empty() ? "" : table.text());
}

std::string examples_text(const Explanation& e) {
  if (e.examples.empty()) return "";
  std::string text = "\nDispatch\n";
  Table table({"batch", ">tokens", "graph", ">padding", "why"});
  for (const DispatchExample& example : e.examples) {
    const Decision& d = example.decision;
    const std::string graph =
        d.runner == RunnerKind::kEager ? "eager" : fmt::format("{} {}", runner_kind_name(d.runner), d.size);
    table.add(
        {example.batch, count_text(example.tokens), graph, count_text(d.padding), std::string(reason_text(d.reason))});
  }
  if (e.image) {
    const VisionChoice& choice = e.image->choice;
    table.add({"image", count_text(e.image->tokens), choice.graph ? fmt::format("vision {}", choice.size) : "eager",
               count_text(choice.size - e.image->patches), std::string(vision_reason_text(choice.reason))});
  }
  return text + table.text();
}

}  // namespace

std::string to_text(const Explanation& e) {
  return model_text(e) + tensors_text(e) + passes_text(e) + parts_text(e.stitching) + ladders_text(e) + drafts_text(e) +
         rules_text(e) + memory_text(e) + schedules_text(e) + examples_text(e);
}

}  // namespace tessera::cli
