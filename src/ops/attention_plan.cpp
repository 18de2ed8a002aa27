// The first half of attention: the batch's lengths and page tables into static buffers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tessera/ops/attention.h"
#include "tessera/ops/backend.h"

namespace tessera {

namespace {

AttentionPlannerOptions planner_options(const AttentionBuffers::Options& options) {
  return {.shapes = options.shapes,
          .max_requests = options.max_requests,
          .max_tokens = options.max_tokens,
          .max_pages_per_request = options.max_pages_per_request,
          .page_size = options.page_size,
          .kernel = options.kernel,
          .deterministic = options.deterministic};
}

}  // namespace

Result<std::int64_t> AttentionBuffers::bytes_needed(Device& device, const Options& options) {
  const std::int64_t own = num_entries(options) * static_cast<std::int64_t>(sizeof(std::int32_t));
  const Backend* backend = TRY(backend_of(device.properties().kind));
  if (backend->attention_planner_bytes == nullptr || options.shapes.empty()) return own;
  return own + TRY(backend->attention_planner_bytes(device, planner_options(options)));
}

std::int64_t AttentionBuffers::bytes() const {
  return static_cast<std::int64_t>(memory_->size()) + (planner_ == nullptr ? 0 : planner_->bytes());
}

Result<AttentionBuffers> AttentionBuffers::create(Device& device, const Options& options) {
  if (options.max_requests < 1 || options.max_pages_per_request < 1 || options.page_size < 1 || options.num_pages < 1)
    return invalid_argument(
        fmt::format("attention buffers need at least one request, page per request, token per page and page, not {}, "
                    "{}, {} and {}",
                    options.max_requests, options.max_pages_per_request, options.page_size, options.num_pages));
  AttentionBuffers buffers;
  buffers.options_ = options;
  buffers.mirror_.resize(static_cast<std::size_t>(num_entries(options)));
  buffers.memory_ = TRY(device.allocate(buffers.mirror_.size() * sizeof(std::int32_t), "attention metadata"));
  const Backend* backend = TRY(backend_of(device.properties().kind));
  if (backend->make_attention_planner != nullptr && !options.shapes.empty()) {
    buffers.planner_ = TRY(backend->make_attention_planner(device, planner_options(options)));
  }
  return buffers;
}

AttentionMetadata AttentionBuffers::metadata() const {
  const auto* base = reinterpret_cast<const std::int32_t*>(memory_->data());
  return {.num_requests = base,
          .query_starts = base + 1,
          .kv_lens = base + 2 + options_.max_requests,
          .page_table = base + header_size(options_),
          .max_requests = options_.max_requests,
          .max_pages_per_request = options_.max_pages_per_request,
          .planner = planner_.get()};
}

namespace {

Status check_sizes(const ForwardBatch& batch, int group, const AttentionBuffers::Options& options) {
  if (group < 0 || static_cast<std::size_t>(group) >= batch.groups.size())
    return internal_error(fmt::format("the batch has {} cache groups, not group {}", batch.groups.size(), group));
  if (batch.num_requests() > options.max_requests)
    return resource_exhausted(fmt::format("{} requests in a forward; the buffers were made for {}",
                                          batch.num_requests(), options.max_requests));
  const CacheGroupBatch& pages = batch.groups[static_cast<std::size_t>(group)];
  if (pages.page_tables.size() != batch.query_lens.size() || batch.kv_lens.size() != batch.query_lens.size())
    return internal_error(fmt::format("{} query lengths, {} cache lengths and {} page tables disagree",
                                      batch.query_lens.size(), batch.kv_lens.size(), pages.page_tables.size()));
  return ok_status();
}

Status check_pages(std::span<const PageId> pages, std::int64_t kv_len, const AttentionBuffers::Options& options) {
  const auto count = static_cast<std::int64_t>(pages.size());
  if (count > options.max_pages_per_request)
    return resource_exhausted(
        fmt::format("{} pages; the buffers were made for {}", count, options.max_pages_per_request));
  if (count * options.page_size < kv_len)
    return internal_error(
        fmt::format("{} pages of {} tokens do not hold its {} tokens", count, options.page_size, kv_len));
  for (const PageId page : pages)
    if (page.value() < 0 || page.value() >= options.num_pages)
      return internal_error(fmt::format("page {} is outside the cache's {}", page.value(), options.num_pages));
  return ok_status();
}

}  // namespace

Status plan_attention(const ForwardBatch& batch, int group, AttentionBuffers& buffers, Stream& stream, BatchKind kind,
                      std::int64_t padded_requests) {
  const AttentionBuffers::Options& options = buffers.options_;
  TRY(check_sizes(batch, group, options).with_context("attention's plan"));
  const auto& page_tables = batch.groups[static_cast<std::size_t>(group)].page_tables;

  // [first, last): the page table's entries that the device does not have yet.
  const auto header = static_cast<std::size_t>(AttentionBuffers::header_size(options));
  std::size_t first = buffers.uploaded_ ? buffers.mirror_.size() : header;
  std::size_t last = buffers.uploaded_ ? header : buffers.mirror_.size();
  buffers.uploaded_ = false;

  std::int32_t* query_starts = buffers.mirror_.data() + 1;
  std::int32_t* kv_lens = query_starts + options.max_requests + 1;
  std::int32_t query_start = 0;
  for (std::size_t b = 0; b < page_tables.size(); ++b) {
    const std::vector<PageId>& pages = page_tables[b];
    const Status pages_ok = check_pages(pages, batch.kv_lens[b], options);
    if (!pages_ok.ok()) return pages_ok.with_context(fmt::format("attention's plan: request {}", b));
    query_starts[b] = query_start;
    query_start += batch.query_lens[b];
    kv_lens[b] = batch.kv_lens[b];

    static_assert(sizeof(PageId) == sizeof(std::int32_t));
    const std::size_t row = header + b * static_cast<std::size_t>(options.max_pages_per_request);
    const std::size_t row_bytes = pages.size() * sizeof(PageId);
    if (row_bytes == 0 || std::memcmp(buffers.mirror_.data() + row, pages.data(), row_bytes) == 0) continue;
    std::memcpy(buffers.mirror_.data() + row, pages.data(), row_bytes);
    first = std::min(first, row);
    last = std::max(last, row + pages.size());
  }
  const auto num_requests = static_cast<std::size_t>(batch.num_requests());
  query_starts[num_requests] = query_start;
  buffers.mirror_[0] = static_cast<std::int32_t>(num_requests);

  TRY(stream.upload(buffers.memory_->data(), buffers.mirror_.data(), header * sizeof(std::int32_t)));
  if (first < last)
    TRY(stream.upload(buffers.memory_->data() + first * sizeof(std::int32_t), buffers.mirror_.data() + first,
                      (last - first) * sizeof(std::int32_t)));
  buffers.uploaded_ = true;
  return buffers.planner_ == nullptr ? ok_status() : buffers.planner_->plan(batch, kind, padded_requests, stream);
}

}  // namespace tessera
