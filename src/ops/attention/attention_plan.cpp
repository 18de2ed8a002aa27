// Implements attention's plan, which keeps the batch's lengths and page tables at fixed addresses.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/contract/wanted_starts.h"

namespace tessera {
namespace {

bool is_of_wanted_rows(const PlannedNode& planned) { return planned.node->attribute_or(kWantedRowsOnly, false); }

std::int64_t wanted_starts_bytes(const PlanLimits& limits) {
  return limits.max_requests * static_cast<std::int64_t>(sizeof(std::int32_t));
}

}  // namespace

std::vector<AttentionShape> attention_shapes(const PlanArgs& args) {
  std::vector<AttentionShape> shapes;
  for (const PlannedNode& planned : args.nodes) {
    const ir::Type& cache = planned.operands[1];
    const std::int64_t head_dim = cache_head_dim(cache.dtype, *cache.shape[3].constant());
    const AttentionShape shape{.dtype = planned.operands[0].dtype,
                               .cache_dtype = cache.dtype,
                               .heads = *planned.operands[0].shape[1].constant() / head_dim,
                               .kv_heads = *cache.shape[2].constant(),
                               .head_dim = head_dim,
                               .window = planned.node->attribute_or("window", std::int64_t{0}),
                               .softcap = planned.node->attribute_or("softcap", 0.0),
                               .sinks = has_sinks(planned.operands.size(), cache.dtype),
                               .wanted_rows_only = is_of_wanted_rows(planned)};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

Result<const AttentionPlan*> find_attention_plan(const BindArgs& args) {
  return static_cast<const AttentionPlan*>(TRY(find_plan(args)));
}

AttentionPlan::AttentionPlan(const PlanArgs& args, DevicePageTables page_tables, StepBuffer& step)
    : limits_(args.limits),
      group_(args.group),
      kernel_(args.kernel),
      lengths_(args.limits, step),
      step_(&step),
      page_tables_(std::move(page_tables)) {
  if (std::ranges::any_of(args.nodes, is_of_wanted_rows))
    wanted_starts_offset_ = step.reserve(static_cast<std::size_t>(wanted_starts_bytes(limits_)));
}

std::int64_t AttentionPlan::bytes_needed(const PlanArgs& args) {
  const bool has_wanted = std::ranges::any_of(args.nodes, is_of_wanted_rows);
  return BatchLengths::bytes_needed(args.limits) + DevicePageTables::bytes_needed(args.limits) +
         (has_wanted ? align_up(wanted_starts_bytes(args.limits)) : 0);
}

Result<std::unique_ptr<AttentionPlan>> AttentionPlan::create(Device& device, const PlanArgs& args, StepBuffer& step,
                                                             std::unique_ptr<AttentionPlanner> planner) {
  const PlanLimits& limits = args.limits;
  if (limits.max_requests < 1 || limits.max_pages_per_request < 1 || limits.page_size < 1 || args.num_pages < 1)
    return invalid_argument(
        fmt::format("attention's plan needs at least one request, page per request, token per page and page, not {}, "
                    "{}, {} and {}",
                    limits.max_requests, limits.max_pages_per_request, limits.page_size, args.num_pages));
  DevicePageTables page_tables = TRY(DevicePageTables::create(device, limits, args.num_pages));
  std::unique_ptr<AttentionPlan> plan(new AttentionPlan(args, std::move(page_tables), step));
  if (planner != nullptr) plan->shapes_ = attention_shapes(args);
  plan->planner_ = std::move(planner);
  return plan;
}

std::int64_t AttentionPlan::bytes() const {
  return BatchLengths::bytes_needed(limits_) + page_tables_.bytes() +
         (wanted_starts_offset_ ? align_up(wanted_starts_bytes(limits_)) : 0) +
         (planner_ == nullptr ? 0 : planner_->bytes());
}

std::vector<std::string_view> AttentionPlan::kernels(BatchKind kind) const {
  if (planner_ == nullptr) return {kernel_};
  std::vector<std::string_view> names;
  for (const AttentionShape& shape : shapes_) names.push_back(planner_->kernel(shape, kind));
  return names;
}

AttentionMetadata AttentionPlan::metadata() const {
  const RequestLengths lengths = lengths_.lengths();
  return {.num_requests = lengths.num_requests,
          .query_starts = lengths.query_starts,
          .kv_lens = lengths.kv_lens,
          .page_table = page_tables_.data(),
          .wanted_starts = wanted_starts_offset_ ? reinterpret_cast<const std::int32_t*>(
                                                       step_->device_address(*wanted_starts_offset_).raw())
                                                 : nullptr,
          .max_requests = limits_.max_requests,
          .max_pages_per_request = limits_.max_pages_per_request};
}

Status AttentionPlan::check_sizes(const ForwardBatch& batch) const {
  if (static_cast<std::size_t>(group_) >= batch.groups.size())
    return internal_error(fmt::format("the batch has {} cache groups, not group {}", batch.groups.size(), group_));
  if (batch.num_requests() > limits_.max_requests)
    return resource_exhausted(
        fmt::format("{} requests in a forward; the plan was made for {}", batch.num_requests(), limits_.max_requests));
  const CacheGroupBatch& pages = batch.groups[static_cast<std::size_t>(group_)];
  if (pages.page_tables.size() != batch.query_lens.size() || batch.kv_lens.size() != batch.query_lens.size())
    return internal_error(
        fmt::format("{} query lengths, {} cache lengths and {} page tables; they must be equal in number",
                    batch.query_lens.size(), batch.kv_lens.size(), pages.page_tables.size()));
  return ok_status();
}

std::span<const std::int32_t> AttentionPlan::write_wanted_starts(const ForwardBatch& batch) {
  if (!wanted_starts_offset_) return {};
  const std::span starts(reinterpret_cast<std::int32_t*>(step_->host(*wanted_starts_offset_)), batch.query_lens.size());
  find_wanted_starts(batch, starts);
  step_->written(*wanted_starts_offset_, starts.size_bytes());
  return starts;
}

Status AttentionPlan::plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) {
  TRY(check_sizes(batch).with_context("attention's plan"));
  const CacheGroupBatch& pages = batch.groups[static_cast<std::size_t>(group_)];
  TRY(page_tables_.update(pages.page_tables, batch.kv_lens, stream).with_context("attention's plan"));
  lengths_.write(batch);
  const std::span<const std::int32_t> wanted_starts = write_wanted_starts(batch);
  return planner_ == nullptr ? ok_status() : planner_->plan(batch, wanted_starts, kind, padded_requests);
}

}  // namespace tessera
