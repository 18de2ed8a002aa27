#include "tessera/cli/bench/step_bytes.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tessera/engine/engine_options.h"
#include "tessera/engine/plan/engine_plan.h"
#include "tessera/engine/plan/rank_places.h"

namespace tessera::cli {
namespace {

// Returns the bytes of one page of a layer's cache. If the cache has one slot for each sequence instead of pages,
// returns the bytes of one slot. `state` is the type of the cache, and `group` is the index of the cache group.
Result<std::int64_t> page_bytes(const ir::Type& state, std::size_t group) {
  ir::Bucket one;
  one[ir::page_symbol(group)] = 1;
  return ir::size_bytes(state, one);
}

// Returns the fraction of experts that no token of a step uses, if the router chooses all experts equally often. With E
// experts, of which each token uses k, the fraction is (1 - k/E)^tokens.
double unused_share(const ModelConfig& config, std::int64_t tokens) {
  if (!config.moe) return 0;
  const MoeConfig& moe = *config.moe;
  const double chosen = static_cast<double>(moe.experts_per_token) / static_cast<double>(moe.num_experts);
  return std::pow(1 - chosen, tokens);
}

}  // namespace

Result<std::int64_t> cache_bytes(const ir::Graph& body, std::int64_t page_size, const StepShape& step) {
  std::int64_t bytes = 0;
  for (const ir::Node& node : body.nodes)
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const ir::Value& value = body.value(node.operands[i]);
      if (value.kind != ir::ValueKind::kState) continue;
      const std::optional<std::size_t> index = ir::cache_group_of(value.type);
      if (!index) return internal_error("the state " + value.name + " belongs to no cache group");
      const ir::CacheGroup& group = body.cache_groups[*index];
      const std::int64_t page = TRY(page_bytes(value.type, *index));
      if (group.kind == ir::CacheGroup::Kind::kState) {
        bytes += step.requests * page * (node.mutates[i] ? 2 : 1);
      } else if (!node.mutates[i]) {
        const std::int64_t seen = group.window == 0 ? step.context : std::min(step.context, group.window);
        bytes += step.requests * seen * (page / page_size);
      }
    }
  return bytes;
}

Result<std::int64_t> looked_up_bytes(const ir::Graph& body, const ir::Graph& head) {
  std::set<std::string> tables;
  for (const ir::Node& node : body.nodes)
    if (node.op == "embedding")
      for (const ir::ValueId operand : node.operands)
        if (body.value(operand).kind == ir::ValueKind::kWeight) tables.insert(body.value(operand).name);
  std::int64_t bytes = 0;
  for (const std::string& table : tables)
    if (head.find_value(table) == nullptr) bytes += TRY(ir::size_bytes(body.find_value(table)->type, {}));
  return bytes;
}

Result<std::int64_t> expert_bytes(const ir::Graph& body) {
  std::set<std::string> counted;
  std::int64_t bytes = 0;
  for (const ir::Node& node : body.nodes) {
    if (node.op != "moe_experts") continue;
    for (const ir::ValueId operand : node.operands) {
      const ir::Value& value = body.value(operand);
      if (value.kind == ir::ValueKind::kWeight && counted.insert(value.name).second)
        bytes += TRY(ir::size_bytes(value.type, {}));
    }
  }
  return bytes;
}

Result<std::vector<StagePart>> stage_parts(const EngineOptions& options) {
  const std::unique_ptr<Device> device = TRY(open_device(options));
  const RankLayout layout = layout_of(options);
  std::vector<StagePart> parts;
  for (int stage = 0; stage < layout.pp_size; ++stage) {
    EnginePlan plan = TRY(plan_engine(options, *device, layout.rank_at(stage, 0)));
    // A stage without a head only looks up rows of the embedding table, even if another stage's head multiplies by the
    // same table (tied embeddings).
    const std::int64_t looked_up =
        TRY(looked_up_bytes(plan.graphs.body, plan.graphs.has_head ? plan.graphs.head : ir::Graph()));
    parts.push_back({.body = std::move(plan.graphs.body), .weights = plan.memory.weights, .looked_up = looked_up});
  }
  return parts;
}

Result<std::int64_t> step_bytes(const Engine& engine, std::span<const StagePart> stages, const StepShape& step) {
  std::int64_t bytes = 0;
  for (const StagePart& stage : stages) {
    const auto experts = static_cast<double>(TRY(expert_bytes(stage.body)));
    bytes += stage.weights - stage.looked_up -
             static_cast<std::int64_t>(unused_share(engine.config(), step.requests) * experts) +
             TRY(cache_bytes(stage.body, engine.runner().options().page_size, step));
  }
  return bytes;
}

}  // namespace tessera::cli
