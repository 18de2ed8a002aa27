#include "tessera/ops/cuda_attention_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/clear_memory.h"
#include "tessera/ops/decode_attention.h"
#include "tessera/ops/flashinfer/kernels.h"
#include "tessera/ops/prefill_attention.h"

namespace tessera {
namespace {

std::size_t aligned(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

std::size_t ints(std::int64_t count) { return aligned(static_cast<std::size_t>(count) * sizeof(std::int32_t)); }

}  // namespace

std::size_t CudaAttentionPlanner::BlockRange::bytes() const {
  return 3 * ints(blocks) + ints(rows + 1) + ints(1) + aligned(static_cast<std::size_t>(blocks));
}

BlockPlan CudaAttentionPlanner::BlockRange::at(std::byte* memory) const {
  std::byte* next = memory + offset;
  const auto take = [&](std::int64_t count) {
    auto* list = reinterpret_cast<std::int32_t*>(next);
    next += ints(count);
    return list;
  };
  BlockPlan plan{};
  plan.requests = take(blocks);
  plan.tiles = take(blocks);
  plan.chunks = take(blocks);
  plan.starts = take(rows + 1);
  plan.chunk_size = take(1);
  plan.valid = reinterpret_cast<std::uint8_t*>(next);
  return plan;
}

std::size_t CudaAttentionPlanner::SegmentRange::bytes(std::int64_t segments) const {
  return ints(limits.workers + 1) + static_cast<std::size_t>(segments) * sizeof(KeySegment);
}

SegmentPlan CudaAttentionPlanner::SegmentRange::at(std::byte* memory) const {
  std::byte* base = memory + offset;
  return {.starts = reinterpret_cast<std::int32_t*>(base),
          .segments = reinterpret_cast<KeySegment*>(base + ints(limits.workers + 1))};
}

std::size_t CudaAttentionPlanner::SequenceRange::bytes() const { return 2 * ints(requests); }

SequencePlan CudaAttentionPlanner::SequenceRange::at(std::byte* memory) const {
  std::byte* base = memory + offset;
  return {.query_lens = reinterpret_cast<std::int32_t*>(base),
          .kv_lens = reinterpret_cast<std::int32_t*>(base + ints(requests))};
}

std::size_t CudaAttentionPlanner::TileRange::bytes(std::int64_t works) const {
  return ints(schedule->workers() + 1) + static_cast<std::size_t>(works) * sizeof(TileWork);
}
std::span<std::int32_t> CudaAttentionPlanner::TileRange::starts(std::byte* memory) const {
  return {reinterpret_cast<std::int32_t*>(memory + offset), static_cast<std::size_t>(schedule->workers()) + 1};
}
std::span<TileWork> CudaAttentionPlanner::TileRange::works(std::byte* memory) const {
  return {reinterpret_cast<TileWork*>(memory + offset + ints(schedule->workers() + 1)),
          static_cast<std::size_t>(schedule->max_works())};
}
TilePlan CudaAttentionPlanner::TileRange::at(std::byte* memory) const {
  return {starts(memory).data(), works(memory).data(), schedule->workers()};
}

// Decides the kernels of a shape and where its lists lie from `offset` on; returns where they end.
Result<std::size_t> CudaAttentionPlanner::lay_out(ShapePlan& plan, std::size_t offset,
                                                  std::int64_t multiprocessors) const {
  const AttentionShape& shape = plan.shape;
  if (plan.extend == AttentionKernel::kFa3) {
    offset = lay_out_tiles(plan, offset, multiprocessors);
  } else if (plan.extend == AttentionKernel::kFa2) {
    const std::int64_t rows = limits_.max_tokens * (shape.heads / shape.kv_heads);
    plan.blocks = {offset, most_tiles(rows, limits_.max_requests, flashinfer::kFa2TileRows), 0};
    offset += plan.blocks.bytes();
  }
  const auto has_single_rows_on = [&](AttentionKernel kernel) {
    return !limits_.deterministic && (plan.decode == kernel || plan.single_rows == kernel);
  };
  if (has_single_rows_on(AttentionKernel::kFa2)) offset = TRY(lay_out_chunks(plan, offset, multiprocessors));
  if (has_single_rows_on(AttentionKernel::kHopper)) offset = TRY(lay_out_segments(plan, offset, multiprocessors));
  if (plan.decode == AttentionKernel::kCudnn) {
    plan.sequences = {offset, limits_.max_requests};
    offset += plan.sequences.bytes();
  }
  return offset;
}

std::size_t CudaAttentionPlanner::lay_out_tiles(ShapePlan& plan, std::size_t offset,
                                                std::int64_t multiprocessors) const {
  const AttentionShape& shape = plan.shape;
  const bool own = serves_prefill_attention(shape, limits_.page_size);
  // Our own kernel's works are of several heads, each for as many blocks.
  const std::int64_t heads = shape.heads / (own ? kPrefillHeads : 1);
  const std::int64_t workers = std::max<std::int64_t>(1, multiprocessors / (own ? kPrefillHeads : 1));
  const auto lay_out = [&](TileRange& range, std::int64_t tokens, std::int64_t tile_rows) {
    range.schedule.emplace(tokens, limits_.max_requests, heads, tile_rows, workers);
    range.tokens = tokens;
    range.offset = offset;
    offset = aligned(offset + range.bytes(range.schedule->max_works()));
  };
  lay_out(plan.tiles, limits_.max_tokens, flashinfer::fa3_tile_rows(shape.head_dim));
  // As long as one prompt's short tiles all run at once.
  const std::int64_t tokens = own ? std::min(limits_.max_tokens, workers / heads * kShortTileRows) : 0;
  if (tokens > 0) lay_out(plan.short_tiles, tokens, kShortTileRows);
  return offset;
}

Result<std::size_t> CudaAttentionPlanner::lay_out_chunks(ShapePlan& plan, std::size_t offset,
                                                         std::int64_t multiprocessors) const {
  const int blocks = TRY(flashinfer::fa2_decode_residency(plan.shape));
  plan.limits = {.kv_heads = plan.shape.kv_heads,
                 .max_kv_len = limits_.max_pages_per_request * limits_.page_size,
                 .resident_blocks = blocks * multiprocessors};
  plan.chunks = {offset, single_row_grid(limits_.max_requests, plan.limits).blocks, limits_.max_requests};
  return offset + plan.chunks.bytes();
}

// As many workers as blocks run at once, for each KV head.
Result<std::size_t> CudaAttentionPlanner::lay_out_segments(ShapePlan& plan, std::size_t offset,
                                                           std::int64_t multiprocessors) const {
  const int blocks = TRY(decode_attention_residency(plan.shape));
  const std::int64_t workers = std::max<std::int64_t>(1, blocks * multiprocessors / plan.shape.kv_heads);
  plan.segments = {offset,
                   limits_.max_requests,
                   {.workers = workers, .tile_keys = decode_tile_keys(plan.shape), .window = plan.shape.window}};
  return offset + aligned(plan.segments.bytes());
}

void CudaAttentionPlanner::lay_out_partials() {
  std::size_t values = 0;
  std::size_t lse = 0;
  std::size_t arrivals = 0;
  for (const ShapePlan& plan : shapes_) {
    const std::int64_t parts = plan.has_segments() ? most_parts(plan.segments.limits.workers) : 0;
    const std::int64_t heads = std::max(plan.chunks.blocks, parts) * plan.shape.heads;
    values = std::max(
        values, aligned(static_cast<std::size_t>(heads * plan.shape.head_dim) * ir::dtype_size(plan.shape.dtype)));
    lse = std::max(lse, aligned(static_cast<std::size_t>(heads) * sizeof(float)));
    arrivals = std::max(arrivals, ints(parts * plan.shape.kv_heads));
  }
  partial_lse_offset_ = values;
  arrivals_offset_ = values + lse;
  partial_bytes_ = arrivals_offset_ + arrivals;
}

std::size_t CudaAttentionPlanner::page_starts_bytes() const {
  return (static_cast<std::size_t>(limits_.max_requests) + 1) * sizeof(std::int32_t);
}

std::int64_t CudaAttentionPlanner::bytes() const {
  return align_up(static_cast<std::int64_t>(list_bytes_)) + align_up(static_cast<std::int64_t>(page_starts_bytes())) +
         static_cast<std::int64_t>(partial_bytes_);
}

// They do not change: the first plan's upload carries them.
void CudaAttentionPlanner::write_page_starts() {
  if (std::exchange(page_starts_written_, true)) return;
  auto* const starts = reinterpret_cast<std::int32_t*>(step_->host(page_starts_offset_));
  for (std::int64_t b = 0; b <= limits_.max_requests; ++b)
    starts[b] = static_cast<std::int32_t>(b * limits_.max_pages_per_request);
  step_->written(page_starts_offset_, page_starts_bytes());
}

Result<std::unique_ptr<CudaAttentionPlanner>> CudaAttentionPlanner::decide(Device& device, const PlanArgs& args) {
  const PlanLimits& limits = args.limits;
  if (limits.max_requests < 1 || limits.max_tokens < 1 || limits.max_pages_per_request < 1)
    return invalid_argument(
        fmt::format("attention's planner needs at least one request, token and page, not {}, {} "
                    "and {}",
                    limits.max_requests, limits.max_tokens, limits.max_pages_per_request));
  // FlashInfer counts the page table's entries in 32 bits with a sign, and their tokens in 32 without.
  const std::int64_t entries = limits.max_requests * limits.max_pages_per_request;
  if (entries > std::numeric_limits<std::int32_t>::max() ||
      entries * limits.page_size > std::numeric_limits<std::uint32_t>::max())
    return resource_exhausted(
        fmt::format("{} requests of {} pages of {} tokens are more than attention's page table "
                    "can count; fewer requests or a shorter context are needed",
                    limits.max_requests, limits.max_pages_per_request, limits.page_size));
  TRY(check_attention_kernel(limits.attention_kernel));
  TRY(static_cast<CudaDevice&>(device).make_current());
  std::unique_ptr<CudaAttentionPlanner> planner(new CudaAttentionPlanner);
  planner->limits_ = args.limits;
  const AttentionTarget target{device.properties().compute_capability, limits.page_size};
  const std::int64_t multiprocessors = std::max(1, device.properties().threads);
  for (const AttentionShape& shape : attention_shapes(args)) {
    ShapePlan plan;
    plan.shape = shape;
    const std::string& wanted = planner->limits_.attention_kernel;
    if (planner->limits_.deterministic) {
      plan.extend = choose_deterministic_attention_kernel(shape, target, wanted);
      plan.decode = plan.extend;
    } else {
      plan.extend = choose_attention_kernel(shape, BatchKind::kExtend, target, wanted);
      plan.decode = choose_attention_kernel(shape, BatchKind::kDecode, target, wanted);
      plan.single_rows = choose_single_row_kernel(shape, plan.extend, plan.decode, target);
    }
    planner->list_bytes_ = TRY(planner->lay_out(plan, planner->list_bytes_, multiprocessors));
    planner->shapes_.push_back(std::move(plan));
  }
  planner->lay_out_partials();
  return planner;
}

Result<std::unique_ptr<CudaAttentionPlanner>> CudaAttentionPlanner::create(Device& device, const PlanArgs& args,
                                                                           StepBuffer& step) {
  std::unique_ptr<CudaAttentionPlanner> planner = TRY(decide(device, args));
  planner->step_ = &step;
  planner->list_offset_ = step.reserve(planner->list_bytes_);
  planner->page_starts_offset_ = step.reserve(planner->page_starts_bytes());
  planner->partials_ = TRY(device.allocate(planner->partial_bytes_, "attention of chunks"));
  TRY(planner->clear_arrivals());
  return planner;
}

// Launches leave zeros behind.
Status CudaAttentionPlanner::clear_arrivals() {
  const std::size_t bytes = partial_bytes_ - arrivals_offset_;
  return bytes == 0 ? ok_status()
                    : clear_memory(partials_->data().raw() + arrivals_offset_, bytes, "attention's planner");
}

Result<std::int64_t> CudaAttentionPlanner::bytes_needed(Device& device, const PlanArgs& args) {
  const std::unique_ptr<CudaAttentionPlanner> planner = TRY(decide(device, args));
  return planner->bytes();
}

Status CudaAttentionPlanner::check(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests) const {
  std::int64_t tokens = 0;
  for (const std::int32_t query_len : batch.query_lens) tokens += query_len;
  const std::int64_t requests = std::max(batch.num_requests(), kind == BatchKind::kDecode ? padded_requests : 0);
  if (requests > limits_.max_requests || tokens > limits_.max_tokens)
    return resource_exhausted(fmt::format("{} requests with {} tokens; attention's planner was made for {} and {}",
                                          requests, tokens, limits_.max_requests, limits_.max_tokens));
  if (kind == BatchKind::kDecode && tokens != batch.num_requests())
    return internal_error(fmt::format("a decode batch of {} requests has {} tokens", batch.num_requests(), tokens));
  return ok_status();
}

void CudaAttentionPlanner::plan_extend(ShapePlan& plan, const ForwardBatch& batch) {
  if (plan.single_rows == AttentionKernel::kFa2) plan_single_rows(plan, batch);
  if (plan.single_rows == AttentionKernel::kHopper) plan.work.single_blocks = write_segments(plan, batch);
  const std::int64_t least_rows = plan.separates_single_rows() ? 2 : 1;
  if (plan.extend == AttentionKernel::kFa3) {
    plan.work.tiles = write_tiles(plan.tiles, batch, least_rows) > 0;
    // The forward may run in a bucket of either kind.
    const std::int64_t tokens = std::accumulate(batch.query_lens.begin(), batch.query_lens.end(), std::int64_t{0});
    if (plan.short_tiles.schedule && tokens <= plan.short_tiles.tokens)
      write_tiles(plan.short_tiles, batch, least_rows);
  } else if (plan.extend == AttentionKernel::kFa2) {
    plan.work.tiles = plan_tiles(batch.query_lens, least_rows, plan.shape.heads / plan.shape.kv_heads,
                                 flashinfer::kFa2TileRows, plan.blocks.blocks, plan.blocks.at(host())) > 0;
    step_->written(list_offset_ + plan.blocks.offset, plan.blocks.bytes());
  }
}

// Returns the number of works.
std::int64_t CudaAttentionPlanner::write_tiles(TileRange& range, const ForwardBatch& batch, std::int64_t least_rows) {
  const std::int64_t count =
      range.schedule->assign(batch.query_lens, batch.kv_lens, least_rows, range.starts(host()), range.works(host()));
  step_->written(list_offset_ + range.offset, range.bytes(count));
  return count;
}

// The list is written to its end: a recorded launch has blocks for as many requests as fit in its rows.
void CudaAttentionPlanner::plan_single_rows(ShapePlan& plan, const ForwardBatch& batch) {
  const auto rows = std::count(batch.query_lens.begin(), batch.query_lens.end(), 1);
  const ChunkGrid grid = single_row_grid(rows, plan.limits);
  const BlockPlan list = plan.chunks.at(host());
  plan.work.single_blocks =
      plan_chunks(batch.query_lens, batch.kv_lens, plan.chunks.rows, grid, plan.shape.window, list);
  const auto last = std::find(batch.query_lens.rbegin(), batch.query_lens.rend(), 1);
  plan.work.single_requests = batch.query_lens.rend() - last;
  std::fill(list.valid + grid.blocks, list.valid + plan.chunks.blocks, std::uint8_t{0});
  step_->written(list_offset_ + plan.chunks.offset, plan.chunks.bytes());
}

// Returns the number of segments.
std::int64_t CudaAttentionPlanner::write_segments(const ShapePlan& plan, const ForwardBatch& batch) {
  const SegmentRange& range = plan.segments;
  const std::int64_t segments = plan_segments(batch.query_lens, batch.kv_lens, range.limits, range.at(host()));
  step_->written(list_offset_ + range.offset, range.bytes(segments));
  return segments;
}

void CudaAttentionPlanner::write_sequences(const ShapePlan& plan, const ForwardBatch& batch) {
  const SequencePlan to = plan.sequences.at(host());
  for (std::int64_t b = 0; b < plan.sequences.requests; ++b) {
    const bool real = b < batch.num_requests();
    to.query_lens[b] = real ? batch.query_lens[static_cast<std::size_t>(b)] : 0;
    to.kv_lens[b] = real ? batch.kv_lens[static_cast<std::size_t>(b)] : 0;
  }
  step_->written(list_offset_ + plan.sequences.offset, plan.sequences.bytes());
}

void CudaAttentionPlanner::plan_decode(const ShapePlan& plan, const ForwardBatch& batch, std::int64_t rows) {
  if (plan.decode == AttentionKernel::kCudnn) {
    write_sequences(plan, batch);
  } else if (plan.decode == AttentionKernel::kHopper) {
    write_segments(plan, batch);
  } else if (plan.decode == AttentionKernel::kFa2) {
    plan_chunks(batch.query_lens, batch.kv_lens, rows, chunk_grid(rows, plan.limits), plan.shape.window,
                plan.chunks.at(host()));
    step_->written(list_offset_ + plan.chunks.offset, plan.chunks.bytes());
  }
}

Status CudaAttentionPlanner::plan(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests) {
  TRY(check(batch, kind, padded_requests));
  write_page_starts();
  const std::int64_t rows = std::max(batch.num_requests(), padded_requests);
  const bool tiles = kind == BatchKind::kExtend || limits_.deterministic;
  for (ShapePlan& plan : shapes_) {
    if (tiles) {
      plan_extend(plan, batch);
    } else {
      plan_decode(plan, batch, rows);
    }
  }
  return ok_status();
}

const CudaAttentionPlanner::ShapePlan* CudaAttentionPlanner::find(const AttentionShape& shape) const {
  const auto at = std::find_if(shapes_.begin(), shapes_.end(), [&](const ShapePlan& p) { return p.shape == shape; });
  return at == shapes_.end() ? nullptr : &*at;
}

AttentionKernel CudaAttentionPlanner::choice(const AttentionShape& shape, BatchKind kind) const {
  const ShapePlan* plan = find(shape);
  if (plan == nullptr) return AttentionKernel::kTessera;
  return kind == BatchKind::kExtend ? plan->extend : plan->decode;
}

std::string_view CudaAttentionPlanner::kernel(const AttentionShape& shape, BatchKind kind) const {
  return attention_kernel_name(choice(shape, kind));
}

TilePlan CudaAttentionPlanner::tile_plan(const AttentionShape& shape) const { return find(shape)->tiles.at(lists()); }

TilePlan CudaAttentionPlanner::short_tile_plan(const AttentionShape& shape) const {
  return find(shape)->short_tiles.at(lists());
}

BlockPlan CudaAttentionPlanner::block_plan(const AttentionShape& shape) const {
  return find(shape)->blocks.at(lists());
}

const ExtendWork* CudaAttentionPlanner::extend_work(const AttentionShape& shape) const {
  const ShapePlan& plan = *find(shape);
  return plan.separates_single_rows() ? &plan.work : nullptr;
}

SequencePlan CudaAttentionPlanner::sequence_plan(const AttentionShape& shape) const {
  return find(shape)->sequences.at(lists());
}

ChunkedPlan CudaAttentionPlanner::chunked_plan(const AttentionShape& shape) const {
  const ShapePlan& plan = *find(shape);
  return {.blocks = plan.chunks.at(lists()),
          .limits = plan.limits,
          .partial_values = partials_->data().raw(),
          .partial_lse = reinterpret_cast<float*>(partials_->data().raw() + partial_lse_offset_)};
}

SegmentedPlan CudaAttentionPlanner::segmented_plan(const AttentionShape& shape) const {
  const SegmentRange& segments = find(shape)->segments;
  return {.lists = segments.at(lists()),
          .workers = segments.limits.workers,
          .partial_values = partials_->data().raw(),
          .partial_lse = reinterpret_cast<float*>(partials_->data().raw() + partial_lse_offset_),
          .arrivals = reinterpret_cast<std::int32_t*>(partials_->data().raw() + arrivals_offset_)};
}

}  // namespace tessera
