// The memory layout of the work lists that attention's kernels read.
#include "tessera/ops/attention/cuda_attention_planner.h"

#include <algorithm>
#include <span>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/attention/decode_attention.h"
#include "tessera/ops/attention/flashinfer/kernels.h"
#include "tessera/ops/attention/prefill_attention.h"

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
  return static_cast<std::size_t>(lists) * ints(schedule->workers() + 1) +
         static_cast<std::size_t>(works) * sizeof(TileWork);
}
std::span<std::int32_t> CudaAttentionPlanner::TileRange::starts(std::byte* memory, RowList list) const {
  std::byte* const base = memory + offset + static_cast<std::size_t>(list) * ints(schedule->workers() + 1);
  return {reinterpret_cast<std::int32_t*>(base), static_cast<std::size_t>(schedule->workers()) + 1};
}
std::span<TileWork> CudaAttentionPlanner::TileRange::works(std::byte* memory) const {
  return {reinterpret_cast<TileWork*>(memory + offset + bytes(0)),
          static_cast<std::size_t>(lists * schedule->max_works())};
}
TilePlan CudaAttentionPlanner::TileRange::at(std::byte* memory, RowList list) const {
  return {.starts = starts(memory, list).data(), .works = works(memory).data(), .workers = schedule->workers()};
}

// Decides which lists a shape needs and lays them out from `offset` on. Returns the end of the last list.
Result<std::size_t> CudaAttentionPlanner::lay_out(ShapePlan& plan, std::size_t offset,
                                                  std::int64_t multiprocessors) const {
  const AttentionShape& shape = plan.shape;
  if (plan.extend == AttentionKernel::kFa3) {
    offset = lay_out_tiles(plan, offset, multiprocessors);
  } else if (plan.extend == AttentionKernel::kFa2) {
    const std::int64_t rows = limits_.max_tokens * (shape.heads / shape.kv_heads);
    plan.blocks = {offset, most_tiles(rows, limits_.max_requests, flashinfer::kFa2TileRows), 0};
    offset += plan.blocks.bytes();
    if (plan.has_wanted) {
      plan.wanted_blocks = {offset, plan.blocks.blocks, 0};
      offset += plan.wanted_blocks.bytes();
    }
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
  const TileUnits units = prefill_units(shape);
  const std::int64_t workers = std::max<std::int64_t>(1, multiprocessors / kPrefillBlocks);
  const auto lay_out = [&](TileRange& range, std::int64_t tokens, std::int64_t tile_rows) {
    range.schedule.emplace(tokens, limits_.max_requests, units, tile_rows, workers, prefill_key_block(shape.head_dim),
                           shape.window);
    range.tokens = tokens;
    range.offset = offset;
    range.lists = plan.has_wanted ? 2 : 1;
    offset = aligned(offset + range.bytes());
  };
  lay_out(plan.tiles, limits_.max_tokens, kPrefillTileRows);
  // Short tiles are used only for forwards of at most `tokens` tokens. If a single prompt has this length, all its
  // short tiles run at once.
  std::int64_t most_short = 0;
  while ((most_short + 1) * units.per_tile + ceil_div(most_short + 1, std::int64_t{2}) * units.per_pair <= workers)
    ++most_short;
  const std::int64_t tokens =
      has_short_prefill_tiles(shape) ? std::min(limits_.max_tokens, most_short * kShortTileRows) : 0;
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

// Lays out the lists of segments (decode_schedule.h). The blocks that run at once are divided equally among the KV
// heads. A worker has one block for each KV head.
Result<std::size_t> CudaAttentionPlanner::lay_out_segments(ShapePlan& plan, std::size_t offset,
                                                           std::int64_t multiprocessors) const {
  const int blocks = TRY(decode_attention_residency(plan.shape));
  const std::int64_t workers = std::max<std::int64_t>(1, blocks * multiprocessors / plan.shape.kv_heads);
  const SegmentLimits segments{
      .workers = workers, .tile_keys = decode_tile_keys(plan.shape), .window = plan.shape.window};
  if (plan.has_wanted && plan.single_rows == AttentionKernel::kHopper) {
    plan.wanted_segments = {offset, limits_.max_requests, segments};
    offset += aligned(plan.wanted_segments.bytes());
  }
  // This list comes last, so that it lies next to the lengths and inputs that a decode step also writes. Then one copy
  // uploads the list, the lengths and the inputs.
  plan.segments = {offset, limits_.max_requests, segments};
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
    // The launches of all shapes run one after another, so they share the memory of partial results.
    const std::int64_t tile_parts = std::max(plan.tiles.max_parts(), plan.short_tiles.max_parts());
    values = std::max(values, aligned(static_cast<std::size_t>(tile_parts * prefill_part_bytes(plan.shape.head_dim))));
    arrivals = std::max(arrivals, ints(tile_parts * kPrefillPartArrivals));
  }
  partial_lse_offset_ = values;
  arrivals_offset_ = values + lse;
  partial_bytes_ = arrivals_offset_ + arrivals;
}

}  // namespace tessera
