#include "tessera/runner/op_plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string_view>

#include "tessera/ops/contract/op.h"

namespace tessera {
namespace {

// Collects the arguments for making a plan. If a graph has no cache groups, the number of pages is 0.
PlanArgs plan_args(const PlannedOp& op, const OpPlans::Source& source) {
  const auto group = static_cast<std::size_t>(op.group);
  return {.nodes = op.nodes,
          .kernel = op.kernel->name,
          .group = op.group,
          .num_pages = group < source.num_pages.size() ? source.num_pages[group] : 0,
          .limits = source.limits};
}

}  // namespace

Result<OpPlans> OpPlans::create(Device& device, const Source& source, StepBuffer& step) {
  OpPlans plans;
  for (const PlannedOp& op : TRY(find_planned_ops(source.graphs, source.kernels))) {
    std::unique_ptr<OpPlan> plan =
        TRY(op.kernel->planner->make(device, plan_args(op, source), step)
                .with_context(fmt::format("planning {} for cache group {}", op.op, op.group)));
    // op.group is 0 for an operator of cache group 0, and also for an operator without a cache. The attribute "group",
    // which only operators with a cache have, distinguishes the two cases.
    const bool has_states = source.is_state_group(op.nodes[0].node->attribute_or("group", std::int64_t{-1}));
    if (source.limits.drafts && has_states && !plan->plans_requests())
      return unimplemented(
          fmt::format("speculative_algorithm: {} keeps a state for each request, and its planner takes "
                      "no drafts; NONE is accepted",
                      op.op));
    if (has_states && !plan->plans_requests()) plans.takes_checkpoints_ = false;
    plans.entries_.push_back({.op = op.op, .group = op.group, .plan = std::move(plan)});
  }
  return plans;
}

Result<std::int64_t> OpPlans::bytes_needed(Device& device, const Source& source) {
  std::int64_t total = 0;
  for (const PlannedOp& op : TRY(find_planned_ops(source.graphs, source.kernels)))
    total += TRY(op.kernel->planner->bytes_needed(device, plan_args(op, source)));
  return total;
}

void OpPlans::add_to(ForwardContext& context) const {
  for (const Entry& entry : entries_)
    context.plans.push_back({.op = entry.op, .group = entry.group, .plan = entry.plan.get()});
}

Status OpPlans::plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) {
  const ForwardBatch& rows = batch.has_drafts() ? row_requests_.of(batch) : batch;
  for (const Entry& entry : entries_)
    TRY(entry.plan->plan(entry.plan->plans_requests() ? batch : rows, kind, padded_requests, stream));
  return ok_status();
}

std::int64_t OpPlans::bytes() const {
  std::int64_t total = 0;
  for (const Entry& entry : entries_) total += entry.plan->bytes();
  return total;
}

std::string OpPlans::kernels(BatchKind kind) const {
  std::set<std::string_view> names;
  for (const Entry& entry : entries_)
    for (const std::string_view name : entry.plan->kernels(kind)) names.insert(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace tessera
