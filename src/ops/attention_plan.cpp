// Attention's plan: the batch's lengths and page tables into static buffers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/device/alignment.h"
#include "tessera/ops/attention.h"

namespace tessera {
namespace {

constexpr auto kIntBytes = static_cast<std::int64_t>(sizeof(std::int32_t));

std::int64_t lengths_bytes(const PlanLimits& limits) { return (2 * limits.max_requests + 2) * kIntBytes; }
std::int64_t page_entries(const PlanLimits& limits) { return limits.max_requests * limits.max_pages_per_request; }

}  // namespace

std::vector<AttentionShape> attention_shapes(const PlanArgs& args) {
  std::vector<AttentionShape> shapes;
  for (const PlannedNode& planned : args.nodes) {
    const ir::Type& cache = planned.operands[1];
    const std::int64_t head_dim = *cache.shape[3].constant();
    const AttentionShape shape{.dtype = planned.operands[0].dtype,
                               .heads = *planned.operands[0].shape[1].constant() / head_dim,
                               .kv_heads = *cache.shape[2].constant(),
                               .head_dim = head_dim,
                               .window = planned.node->attribute_or("window", std::int64_t{0}),
                               .softcap = planned.node->attribute_or("softcap", 0.0)};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  }
  return shapes;
}

Result<const AttentionPlan*> find_attention_plan(const BindArgs& args) {
  return static_cast<const AttentionPlan*>(TRY(find_plan(args)));
}

AttentionPlan::AttentionPlan(const PlanArgs& args, StepBuffer& step)
    : limits_(args.limits),
      group_(args.group),
      num_pages_(args.num_pages),
      kernel_(args.kernel),
      shapes_(attention_shapes(args)),
      step_(&step),
      lengths_offset_(step.reserve(static_cast<std::size_t>(lengths_bytes(args.limits)))) {}

std::int64_t AttentionPlan::bytes_needed(const PlanArgs& args) {
  return align_up(lengths_bytes(args.limits)) + page_entries(args.limits) * kIntBytes;
}

Result<std::unique_ptr<AttentionPlan>> AttentionPlan::create(Device& device, const PlanArgs& args, StepBuffer& step,
                                                             std::unique_ptr<AttentionPlanner> planner) {
  const PlanLimits& limits = args.limits;
  if (limits.max_requests < 1 || limits.max_pages_per_request < 1 || limits.page_size < 1 || args.num_pages < 1)
    return invalid_argument(
        fmt::format("attention's plan needs at least one request, page per request, token per page and page, not {}, "
                    "{}, {} and {}",
                    limits.max_requests, limits.max_pages_per_request, limits.page_size, args.num_pages));
  std::unique_ptr<AttentionPlan> plan(new AttentionPlan(args, step));
  plan->page_mirror_.resize(static_cast<std::size_t>(page_entries(limits)));
  plan->page_table_ = TRY(device.allocate(plan->page_mirror_.size() * sizeof(std::int32_t), "attention's page table"));
  plan->planner_ = std::move(planner);
  return plan;
}

std::int64_t AttentionPlan::bytes() const {
  return align_up(lengths_bytes(limits_)) + static_cast<std::int64_t>(page_table_->size()) +
         (planner_ == nullptr ? 0 : planner_->bytes());
}

std::vector<std::string_view> AttentionPlan::kernels(BatchKind kind) const {
  if (planner_ == nullptr) return {kernel_};
  std::vector<std::string_view> names;
  for (const AttentionShape& shape : shapes_) names.push_back(planner_->kernel(shape, kind));
  return names;
}

AttentionMetadata AttentionPlan::metadata() const {
  const auto* lengths = reinterpret_cast<const std::int32_t*>(step_->device_address(lengths_offset_).raw());
  return {.num_requests = lengths,
          .query_starts = lengths + 1,
          .kv_lens = lengths + 2 + limits_.max_requests,
          .page_table = reinterpret_cast<const std::int32_t*>(page_table_->data().raw()),
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
    return internal_error(fmt::format("{} query lengths, {} cache lengths and {} page tables disagree",
                                      batch.query_lens.size(), batch.kv_lens.size(), pages.page_tables.size()));
  return ok_status();
}

Status AttentionPlan::check_pages(std::span<const PageId> pages, std::int64_t kv_len) const {
  const auto count = static_cast<std::int64_t>(pages.size());
  if (count > limits_.max_pages_per_request)
    return resource_exhausted(fmt::format("{} pages; the plan was made for {}", count, limits_.max_pages_per_request));
  if (count * limits_.page_size < kv_len)
    return internal_error(
        fmt::format("{} pages of {} tokens do not hold its {} tokens", count, limits_.page_size, kv_len));
  for (const PageId page : pages)
    if (page.value() < 0 || page.value() >= num_pages_)
      return internal_error(fmt::format("page {} is outside the cache's {}", page.value(), num_pages_));
  return ok_status();
}

void AttentionPlan::write_lengths(const ForwardBatch& batch) {
  auto* const num_requests = reinterpret_cast<std::int32_t*>(step_->host(lengths_offset_));
  std::int32_t* const query_starts = num_requests + 1;
  std::int32_t* const kv_lens = query_starts + limits_.max_requests + 1;
  std::int32_t query_start = 0;
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    query_starts[b] = query_start;
    query_start += batch.query_lens[b];
    kv_lens[b] = batch.kv_lens[b];
  }
  query_starts[batch.query_lens.size()] = query_start;
  *num_requests = static_cast<std::int32_t>(batch.num_requests());
  step_->written(lengths_offset_, static_cast<std::size_t>(lengths_bytes(limits_)));
}

// The range of the table between the first and the last entry that the device does not have yet.
Status AttentionPlan::upload_pages(const ForwardBatch& batch, Stream& stream) {
  const auto& page_tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  std::size_t first = pages_uploaded_ ? page_mirror_.size() : 0;
  std::size_t last = pages_uploaded_ ? 0 : page_mirror_.size();
  pages_uploaded_ = false;
  for (std::size_t b = 0; b < page_tables.size(); ++b) {
    static_assert(sizeof(PageId) == sizeof(std::int32_t));
    const std::vector<PageId>& pages = page_tables[b];
    const std::size_t row = b * static_cast<std::size_t>(limits_.max_pages_per_request);
    const std::size_t row_bytes = pages.size() * sizeof(PageId);
    if (row_bytes == 0 || std::memcmp(page_mirror_.data() + row, pages.data(), row_bytes) == 0) continue;
    std::memcpy(page_mirror_.data() + row, pages.data(), row_bytes);
    first = std::min(first, row);
    last = std::max(last, row + pages.size());
  }
  if (first < last)
    TRY(stream.upload(page_table_->data() + first * sizeof(std::int32_t), page_mirror_.data() + first,
                      (last - first) * sizeof(std::int32_t)));
  pages_uploaded_ = true;
  return ok_status();
}

Status AttentionPlan::plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests, Stream& stream) {
  TRY(check_sizes(batch).with_context("attention's plan"));
  const auto& page_tables = batch.groups[static_cast<std::size_t>(group_)].page_tables;
  for (std::size_t b = 0; b < page_tables.size(); ++b) {
    const Status pages_ok = check_pages(page_tables[b], batch.kv_lens[b]);
    if (!pages_ok.ok()) return pages_ok.with_context(fmt::format("attention's plan: request {}", b));
  }
  write_lengths(batch);
  TRY(upload_pages(batch, stream));
  return planner_ == nullptr ? ok_status() : planner_->plan(batch, kind, padded_requests);
}

}  // namespace tessera
