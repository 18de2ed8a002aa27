#include "tessera/ops/attention/cuda_attention_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/device/alignment.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/attention/flashinfer/kernels.h"
#include "tessera/ops/cuda/clear_memory.h"

namespace tessera {

std::size_t CudaAttentionPlanner::page_starts_bytes() const {
  return (static_cast<std::size_t>(limits_.max_requests) + 1) * sizeof(std::int32_t);
}

std::int64_t CudaAttentionPlanner::bytes() const {
  return align_up(static_cast<std::int64_t>(list_bytes_)) + align_up(static_cast<std::int64_t>(page_starts_bytes())) +
         static_cast<std::int64_t>(partial_bytes_);
}

// Writes page_starts() once, because its values do not change. The upload of the first plan copies them to the device.
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
  // FlashInfer counts the page table's entries in signed 32-bit integers, and the tokens in unsigned 32-bit integers.
  const std::int64_t entries = limits.max_requests * limits.max_pages_per_request;
  if (entries > std::numeric_limits<std::int32_t>::max() ||
      entries * limits.page_size > std::numeric_limits<std::uint32_t>::max())
    return resource_exhausted(
        fmt::format("{} requests of {} pages of {} tokens are more than attention's page table "
                    "can count; fewer requests or a shorter context are needed",
                    limits.max_requests, limits.max_pages_per_request, limits.page_size));
  TRY(check_attention_kernel(limits.attention_kernel));
  // Tests make plans for devices that are only described. Such a device cannot be current.
  if (const auto* const gpu = dynamic_cast<const CudaDevice*>(&device)) TRY(gpu->make_current());
  std::unique_ptr<CudaAttentionPlanner> planner(new CudaAttentionPlanner);
  planner->limits_ = args.limits;
  const AttentionTarget target{device.properties().compute_capability, limits.page_size};
  const std::int64_t multiprocessors = std::max(1, device.properties().threads);
  for (AttentionShape shape : attention_shapes(args)) {
    const bool wanted_rows_only = std::exchange(shape.wanted_rows_only, false);
    if (const auto known = std::ranges::find(planner->shapes_, shape, &ShapePlan::shape);
        known != planner->shapes_.end()) {
      known->has_wanted |= wanted_rows_only;
      continue;
    }
    ShapePlan plan;
    plan.shape = shape;
    plan.has_wanted = wanted_rows_only;
    const std::string& wanted = planner->limits_.attention_kernel;
    if (planner->limits_.deterministic) {
      plan.extend = choose_deterministic_attention_kernel(shape, target, wanted);
      plan.decode = plan.extend;
    } else {
      plan.extend = choose_attention_kernel(shape, BatchKind::kExtend, target, wanted);
      plan.decode = choose_attention_kernel(shape, BatchKind::kDecode, target, wanted);
      plan.single_rows = choose_single_row_kernel(shape, plan.extend, plan.decode, target);
    }
    planner->shapes_.push_back(std::move(plan));
  }
  for (ShapePlan& plan : planner->shapes_)
    planner->list_bytes_ = TRY(planner->lay_out(plan, planner->list_bytes_, multiprocessors));
  planner->first_tiled_.resize(static_cast<std::size_t>(limits.max_requests));
  planner->lay_out_partials();
  return planner;
}

Result<std::unique_ptr<CudaAttentionPlanner>> CudaAttentionPlanner::create(Device& device, const PlanArgs& args,
                                                                           StepBuffer& step) {
  std::unique_ptr<CudaAttentionPlanner> planner = TRY(decide(device, args));
  for (const ShapePlan& plan : planner->shapes_)
    if (plan.shape.cache_dtype != plan.shape.dtype)
      log_info("attention",
               "queries of {} with a cache of {}: prompts run on {}, decodes on {}; fa2 and cudnn need a cache of "
               "the queries' type",
               ir::dtype_name(plan.shape.dtype), ir::dtype_name(plan.shape.cache_dtype),
               attention_kernel_name(plan.extend), attention_kernel_name(plan.decode));
  planner->step_ = &step;
  planner->list_offset_ = step.reserve(planner->list_bytes_);
  planner->page_starts_offset_ = step.reserve(planner->page_starts_bytes());
  planner->partials_ = TRY(device.allocate(planner->partial_bytes_, "attention of chunks"));
  TRY(planner->clear_arrivals());
  return planner;
}

// Clears the arrival counters once. This is enough, because every launch resets them to zero.
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
  if (plan.single_rows == AttentionKernel::kHopper)
    plan.work.single_blocks = write_segments(plan.segments, {batch.query_lens, batch.kv_lens});
  plan.work.tiles = write_tiles(plan, {.all = tiled_rows(plan, batch), .wanted = std::nullopt});
}

// Plans the lists of wanted rows (ForwardBatch::wanted_rows), after plan_extend() has planned the lists of all rows. If
// the same requests have segments in both lists, as in most steps in which no prompt ends, the list of wanted rows is a
// copy of the list of all rows.
void CudaAttentionPlanner::plan_wanted(ShapePlan& plan, const ForwardBatch& batch,
                                       std::span<const std::int32_t> wanted_starts) {
  plan.wanted_work = plan.work;
  if (plan.has_wanted_segments()) {
    const SegmentedRows all{batch.query_lens, batch.kv_lens};
    const SegmentedRows wanted{batch.query_lens, batch.kv_lens, wanted_starts};
    bool same = true;
    for (std::size_t b = 0; same && b < batch.query_lens.size(); ++b)
      same = wanted.has_segments(b) == all.has_segments(b);
    plan.wanted_work.single_blocks = same ? copy_segments(plan.segments, plan.wanted_segments, plan.work.single_blocks)
                                          : write_segments(plan.wanted_segments, wanted);
  }
  plan.wanted_work.tiles =
      write_tiles(plan, {.all = tiled_rows(plan, batch), .wanted = tiled_wanted_rows(plan, batch, wanted_starts)});
}

// Returns the rows that are divided into tiles: all rows, except those that the single-row kernel computes.
TiledRows CudaAttentionPlanner::tiled_rows(const ShapePlan& plan, const ForwardBatch& batch) {
  return {.query_lens = batch.query_lens, .kv_lens = batch.kv_lens, .least_rows = plan.separates_single_rows() ? 2 : 1};
}

// Returns the wanted rows that are divided into tiles: each request's rows from the first wanted row on, except rows
// that the single-row kernel computes.
TiledRows CudaAttentionPlanner::tiled_wanted_rows(const ShapePlan& plan, const ForwardBatch& batch,
                                                  std::span<const std::int32_t> wanted_starts) {
  for (std::size_t b = 0; b < batch.query_lens.size(); ++b) {
    const std::int32_t rows = batch.query_lens[b];
    const bool single =
        plan.has_wanted_segments() ? rows - wanted_starts[b] == 1 : plan.separates_single_rows() && rows == 1;
    first_tiled_[b] = single ? rows : wanted_starts[b];
  }
  return {.query_lens = batch.query_lens, .kv_lens = batch.kv_lens, .first_rows = first_tiled_};
}

// Writes a list of tiles, and returns whether it has any tiles.
bool CudaAttentionPlanner::write_tiles(ShapePlan& plan, const ListRows& rows) {
  if (plan.extend == AttentionKernel::kFa2)
    return rows.wanted ? write_blocks(plan, plan.wanted_blocks, *rows.wanted) > 0
                       : write_blocks(plan, plan.blocks, rows.all) > 0;
  if (plan.extend != AttentionKernel::kFa3) return false;
  // The forward may run with short tiles or with tiles of full size, depending on the size to which it is padded. So
  // both lists are written.
  const std::int64_t tokens = std::accumulate(rows.all.query_lens.begin(), rows.all.query_lens.end(), std::int64_t{0});
  if (plan.short_tiles.schedule && tokens <= plan.short_tiles.tokens) write_works(plan.short_tiles, rows);
  return write_works(plan.tiles, rows) > 0;
}

// Writes a list of work items and returns their number.
std::int64_t CudaAttentionPlanner::write_works(TileRange& range, const ListRows& rows) {
  const std::int64_t works = rows.wanted ? write_wanted_works(range, rows) : write_all_works(range, rows.all);
  step_->written(list_offset_ + range.offset, range.bytes(range.works_of_all + range.works_of_wanted));
  return works;
}

std::int64_t CudaAttentionPlanner::write_all_works(TileRange& range, const TiledRows& rows) {
  range.works_of_all = range.schedule->assign(rows, range.starts(host(), RowList::kAll), range.works(host()));
  range.works_of_wanted = 0;
  return range.works_of_all;
}

// Writes the items of wanted rows behind the items of all rows, so that one copy uploads both lists. If the wanted rows
// have the same tiles, as in steps that draft, both lists share their items.
std::int64_t CudaAttentionPlanner::write_wanted_works(TileRange& range, const ListRows& rows) {
  const std::span<std::int32_t> starts = range.starts(host(), RowList::kWanted);
  if (rows.wanted->same_tiles(rows.all, range.schedule->tile_rows())) {
    std::ranges::copy(range.starts(host(), RowList::kAll), starts.begin());
    return range.works_of_all;
  }
  const std::int64_t before = range.works_of_all;
  range.works_of_wanted =
      range.schedule->assign(*rows.wanted, starts, range.works(host()).subspan(static_cast<std::size_t>(before)));
  for (std::int32_t& start : starts) start += static_cast<std::int32_t>(before);
  return range.works_of_wanted;
}

// Writes the list of blocks and returns the number of tiles.
std::int64_t CudaAttentionPlanner::write_blocks(const ShapePlan& plan, const BlockRange& range, const TiledRows& rows) {
  const std::int64_t tiles = plan_tiles(rows, plan.shape.heads / plan.shape.kv_heads, flashinfer::kFa2TileRows,
                                        range.blocks, range.at(host()));
  step_->written(list_offset_ + range.offset, range.bytes());
  return tiles;
}

// Plans the single-row requests. A recorded launch has blocks for as many requests as its rows can hold, so the blocks
// after the end of this step's grid are marked as invalid.
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

// Writes the list of segments and returns their number.
std::int64_t CudaAttentionPlanner::write_segments(const SegmentRange& range, const SegmentedRows& rows) {
  const std::int64_t segments = plan_segments(rows, range.limits, range.at(host()));
  step_->written(list_offset_ + range.offset, range.bytes(segments));
  return segments;
}

// Copies a list of `segments` segments, and returns `segments`.
std::int64_t CudaAttentionPlanner::copy_segments(const SegmentRange& from, const SegmentRange& to,
                                                 std::int64_t segments) {
  std::copy_n(host() + from.offset, from.bytes(segments), host() + to.offset);
  step_->written(list_offset_ + to.offset, to.bytes(segments));
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
    write_segments(plan.segments, {batch.query_lens, batch.kv_lens});
  } else if (plan.decode == AttentionKernel::kFa2) {
    plan_chunks(batch.query_lens, batch.kv_lens, rows, chunk_grid(rows, plan.limits), plan.shape.window,
                plan.chunks.at(host()));
    step_->written(list_offset_ + plan.chunks.offset, plan.chunks.bytes());
  }
}

Status CudaAttentionPlanner::plan(const ForwardBatch& batch, std::span<const std::int32_t> wanted_starts,
                                  BatchKind kind, std::int64_t padded_requests) {
  TRY(check(batch, kind, padded_requests));
  write_page_starts();
  const std::int64_t rows = std::max(batch.num_requests(), padded_requests);
  const bool tiles = kind == BatchKind::kExtend || limits_.deterministic;
  for (ShapePlan& plan : shapes_) {
    if (tiles) {
      plan_extend(plan, batch);
      if (plan.has_wanted) plan_wanted(plan, batch, wanted_starts);
    } else {
      plan_decode(plan, batch, rows);
    }
  }
  return ok_status();
}

const CudaAttentionPlanner::ShapePlan* CudaAttentionPlanner::find(AttentionShape shape) const {
  shape.wanted_rows_only = false;
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

TilePlan CudaAttentionPlanner::with_parts(TilePlan plan) const {
  plan.part_results = partials_->data().raw();
  plan.arrivals = reinterpret_cast<std::int32_t*>(partials_->data().raw() + arrivals_offset_);
  return plan;
}

TilePlan CudaAttentionPlanner::tile_plan(const AttentionShape& shape) const {
  return with_parts(find(shape)->tiles.at(lists(), list_of(shape)));
}

TilePlan CudaAttentionPlanner::short_tile_plan(const AttentionShape& shape) const {
  return with_parts(find(shape)->short_tiles.at(lists(), list_of(shape)));
}

BlockPlan CudaAttentionPlanner::block_plan(const AttentionShape& shape) const {
  const ShapePlan& plan = *find(shape);
  return (shape.wanted_rows_only ? plan.wanted_blocks : plan.blocks).at(lists());
}

const ExtendWork* CudaAttentionPlanner::extend_work(const AttentionShape& shape) const {
  const ShapePlan& plan = *find(shape);
  if (!plan.separates_single_rows()) return nullptr;
  return shape.wanted_rows_only ? &plan.wanted_work : &plan.work;
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
  const ShapePlan& plan = *find(shape);
  const SegmentRange& segments = shape.wanted_rows_only ? plan.wanted_segments : plan.segments;
  return {.lists = segments.at(lists()),
          .workers = segments.limits.workers,
          .partial_values = partials_->data().raw(),
          .partial_lse = reinterpret_cast<float*>(partials_->data().raw() + partial_lse_offset_),
          .arrivals = reinterpret_cast<std::int32_t*>(partials_->data().raw() + arrivals_offset_)};
}

}  // namespace tessera
