#include "tessera/ops/contract/state_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/device/alignment.h"

namespace tessera {
namespace {

std::int64_t array_bytes(const PlanLimits& limits) {
  return limits.max_requests * static_cast<std::int64_t>(sizeof(std::int32_t));
}

// Returns the greatest number of draft rows for which the slots of every node have room.
std::int64_t held_drafts(std::span<const PlannedNode> nodes) {
  std::int64_t held = nodes.empty() ? 0 : INT32_MAX;
  for (const PlannedNode& node : nodes) held = std::min(held, node.node->attribute_or("drafts", std::int64_t{0}));
  return held;
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
      max_drafts_(held_drafts(args.nodes)),
      kernel_(args.kernel),
      step_(&step),
      lengths_(args.limits, step),
      slots_offset_(step.reserve(static_cast<std::size_t>(array_bytes(args.limits)))),
      drafts_offset_(step.reserve(static_cast<std::size_t>(array_bytes(args.limits)))),
      accepted_offset_(step.reserve(static_cast<std::size_t>(array_bytes(args.limits)))),
      checkpoint_rows_offset_(step.reserve(static_cast<std::size_t>(array_bytes(args.limits)))),
      checkpoint_slots_offset_(step.reserve(static_cast<std::size_t>(array_bytes(args.limits)))) {
  query_lens_.reserve(static_cast<std::size_t>(args.limits.max_requests));
}

Result<std::unique_ptr<StatePlan>> StatePlan::create(const PlanArgs& args, StepBuffer& step) {
  if (args.limits.max_requests < 1 || args.num_pages < 1)
    return invalid_argument(fmt::format("a plan of states needs at least one request and slot, not {} and {}",
                                        args.limits.max_requests, args.num_pages));
  return std::unique_ptr<StatePlan>(new StatePlan(args, step));
}

std::int64_t StatePlan::bytes_needed(const PlanLimits& limits) {
  return BatchLengths::bytes_needed(limits) + 5 * align_up(array_bytes(limits));
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
  for (const std::vector<std::int32_t>* lens : {&batch.draft_lens, &batch.accepted_drafts})
    for (std::size_t b = 0; b < lens->size(); ++b)
      if ((*lens)[b] > max_drafts_)
        return internal_error(fmt::format("request {} has {} {} drafts; a slot holds {}", b, (*lens)[b],
                                          lens == &batch.draft_lens ? "new" : "accepted", max_drafts_));
  // A request with accepted and new drafts must have exactly one row before its new drafts in this forward. With more
  // rows, new drafts could overwrite accepted ones in the slot.
  for (std::size_t b = 0; b < std::min(batch.draft_lens.size(), batch.accepted_drafts.size()); ++b)
    if (batch.draft_lens[b] > 0 && batch.accepted_drafts[b] > 0 && batch.query_lens[b] != batch.draft_lens[b] + 1)
      return internal_error(fmt::format("request {} has {} rows between accepted and new drafts; 1 is accepted", b,
                                        batch.query_lens[b] - batch.draft_lens[b]));
  return check_checkpoints(batch);
}

Status StatePlan::check_checkpoints(const ForwardBatch& batch) const {
  const std::vector<PageTable>& tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  std::int32_t previous = -1;
  for (const StateCheckpoint& checkpoint : batch.checkpoints) {
    if (checkpoint.group >= batch.groups.size())
      return internal_error(
          fmt::format("a checkpoint in cache group {}; the batch has {}", checkpoint.group, batch.groups.size()));
    if (checkpoint.group != static_cast<std::size_t>(group_)) continue;
    if (checkpoint.request <= previous || checkpoint.request >= batch.num_requests())
      return internal_error(fmt::format("a checkpoint of request {} after one of request {}; the batch has {}",
                                        checkpoint.request, previous, batch.num_requests()));
    previous = checkpoint.request;
    const auto b = static_cast<std::size_t>(checkpoint.request);
    if (checkpoint.rows < 1 || checkpoint.rows >= batch.query_lens[b])
      return internal_error(
          fmt::format("request {} has a checkpoint after {} of its {} rows", b, checkpoint.rows, batch.query_lens[b]));
    if (!batch.draft_lens.empty() && batch.draft_lens[b] > 0)
      return internal_error(fmt::format("request {} has both drafts and a checkpoint", b));
    const std::int32_t slot = checkpoint.slot.value();
    if (slot < 1 || slot >= num_slots_)
      return internal_error(fmt::format("request {}: checkpoint slot {} is not among the group's slots 1 to {}", b,
                                        slot, num_slots_ - 1));
    if (std::ranges::any_of(tables, [&](const PageTable& table) { return table.pages[0] == checkpoint.slot; }))
      return internal_error(fmt::format("request {}: a request has its checkpoint slot {}", b, slot));
  }
  return ok_status();
}

Status StatePlan::plan(const ForwardBatch& batch, BatchKind /*kind*/, std::int64_t /*padded_requests*/,
                       Stream& /*stream*/) {
  TRY(check(batch).with_context("a plan of states"));
  lengths_.write(batch);
  query_lens_ = batch.query_lens;
  const std::vector<PageTable>& tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  const auto write = [&](std::size_t offset, const auto& value_of) {
    auto* const values = reinterpret_cast<std::int32_t*>(step_->host(offset));
    for (std::size_t b = 0; b < tables.size(); ++b) values[b] = value_of(b);
    step_->written(offset, tables.size() * sizeof(std::int32_t));
  };
  const auto entry_of = [](const std::vector<std::int32_t>& lens) {
    return [&lens](std::size_t b) { return lens.empty() ? 0 : lens[b]; };
  };
  write(slots_offset_, [&](std::size_t b) { return tables[b].pages[0].value(); });
  write(drafts_offset_, entry_of(batch.draft_lens));
  write(accepted_offset_, entry_of(batch.accepted_drafts));
  write(checkpoint_rows_offset_, [](std::size_t) { return 0; });
  write(checkpoint_slots_offset_, [](std::size_t) { return 0; });
  for (const StateCheckpoint& checkpoint : batch.checkpoints) {
    if (checkpoint.group != static_cast<std::size_t>(group_)) continue;
    reinterpret_cast<std::int32_t*>(step_->host(checkpoint_rows_offset_))[checkpoint.request] = checkpoint.rows;
    reinterpret_cast<std::int32_t*>(step_->host(checkpoint_slots_offset_))[checkpoint.request] =
        checkpoint.slot.value();
  }
  return ok_status();
}

StateMetadata StatePlan::metadata() const {
  const auto at = [&](std::size_t offset) {
    return reinterpret_cast<const std::int32_t*>(step_->device_address(offset).raw());
  };
  return {.lengths = lengths_.lengths(),
          .slots = at(slots_offset_),
          .drafts = at(drafts_offset_),
          .accepted = at(accepted_offset_),
          .checkpoint_rows = at(checkpoint_rows_offset_),
          .checkpoint_slots = at(checkpoint_slots_offset_),
          .max_requests = limits_.max_requests};
}

Result<const StatePlan*> find_state_plan(const BindArgs& args) {
  return static_cast<const StatePlan*>(TRY(find_plan(args)));
}

std::int64_t count_requests(const StateMetadata& metadata, std::int64_t rows) {
  std::int64_t count = *metadata.lengths.num_requests;
  while (count > 0 && metadata.lengths.query_starts[count] > rows) --count;
  return count;
}

}  // namespace tessera
