#include "tessera/ops/contract/state_plan.h"

#include <fmt/format.h>

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

std::int64_t slots_bytes(const PlanLimits& limits) {
  return limits.max_requests * static_cast<std::int64_t>(sizeof(std::int32_t));
}

Result<std::unique_ptr<OpPlan>> make_plan(Device& /*device*/, const PlanArgs& args, StepBuffer& step) {
  return TRY(StatePlan::create(args, step));
}

Result<std::int64_t> plan_bytes(Device& /*device*/, const PlanArgs& args) {
  return StatePlan::bytes_needed(args.limits);
}

}  // namespace

const OpPlanner kStatePlanner{.make = make_plan, .bytes_needed = plan_bytes};

StatePlan::StatePlan(const PlanArgs& args, StepBuffer& step)
    : limits_(args.limits),
      group_(args.group),
      num_slots_(args.num_pages),
      kernel_(args.kernel),
      step_(&step),
      lengths_(args.limits, step),
      slots_offset_(step.reserve(static_cast<std::size_t>(slots_bytes(args.limits)))),
      drafts_offset_(step.reserve(static_cast<std::size_t>(slots_bytes(args.limits)))) {}

Result<std::unique_ptr<StatePlan>> StatePlan::create(const PlanArgs& args, StepBuffer& step) {
  if (args.limits.max_requests < 1 || args.num_pages < 1)
    return invalid_argument(fmt::format("a plan of states needs at least one request and slot, not {} and {}",
                                        args.limits.max_requests, args.num_pages));
  return std::unique_ptr<StatePlan>(new StatePlan(args, step));
}

std::int64_t StatePlan::bytes_needed(const PlanLimits& limits) {
  return BatchLengths::bytes_needed(limits) + 2 * align_up(slots_bytes(limits));
}

Status StatePlan::check(const ForwardBatch& batch) const {
  if (static_cast<std::size_t>(group_) >= batch.groups.size())
    return internal_error(fmt::format("the batch has {} cache groups, not group {}", batch.groups.size(), group_));
  if (batch.num_requests() > limits_.max_requests)
    return resource_exhausted(
        fmt::format("{} requests in a forward; the plan was made for {}", batch.num_requests(), limits_.max_requests));
  const std::vector<PageTable>& tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  if (tables.size() != batch.query_lens.size() || batch.kv_lens.size() != batch.query_lens.size())
    return internal_error(fmt::format("{} query lengths, {} cache lengths and {} slots disagree",
                                      batch.query_lens.size(), batch.kv_lens.size(), tables.size()));
  for (std::size_t b = 0; b < tables.size(); ++b) {
    if (tables[b].pages.empty()) return internal_error(fmt::format("request {} has no slot", b));
    const std::int32_t slot = tables[b].pages[0].value();
    if (slot < 0 || slot >= num_slots_)
      return internal_error(fmt::format("request {}: slot {} is outside the group's {}", b, slot, num_slots_));
  }
  return ok_status();
}

Status StatePlan::plan(const ForwardBatch& batch, BatchKind /*kind*/, std::int64_t /*padded_requests*/,
                       Stream& /*stream*/) {
  TRY(check(batch).with_context("a plan of states"));
  lengths_.write(batch);
  auto* const slots = reinterpret_cast<std::int32_t*>(step_->host(slots_offset_));
  const std::vector<PageTable>& tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  for (std::size_t b = 0; b < tables.size(); ++b) slots[b] = tables[b].pages[0].value();
  step_->written(slots_offset_, tables.size() * sizeof(std::int32_t));
  auto* const drafts = reinterpret_cast<std::int32_t*>(step_->host(drafts_offset_));
  for (std::size_t b = 0; b < tables.size(); ++b) drafts[b] = batch.draft_lens.empty() ? 0 : batch.draft_lens[b];
  step_->written(drafts_offset_, tables.size() * sizeof(std::int32_t));
  return ok_status();
}

StateMetadata StatePlan::metadata() const {
  return {.lengths = lengths_.lengths(),
          .slots = reinterpret_cast<const std::int32_t*>(step_->device_address(slots_offset_).raw()),
          .drafts = reinterpret_cast<const std::int32_t*>(step_->device_address(drafts_offset_).raw()),
          .max_requests = limits_.max_requests};
}

Result<StateMetadata> find_state_plan(const BindArgs& args) {
  return static_cast<const StatePlan*>(TRY(find_plan(args)))->metadata();
}

std::int64_t count_requests(const StateMetadata& metadata, std::int64_t rows) {
  std::int64_t count = *metadata.lengths.num_requests;
  while (count > 0 && metadata.lengths.query_starts[count] > rows) --count;
  return count;
}

}  // namespace tessera
