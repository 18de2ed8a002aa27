// The work lists of attention's kernels for one cache group (layers that share a page table). They are made on the host
// before every forward and copied to the device with the step buffer. Bound kernels read them at fixed addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/attention/attention_planner.h"
#include "tessera/ops/attention/attention_schedule.h"
#include "tessera/ops/attention/cuda_attention.h"
#include "tessera/ops/attention/cudnn/attention.h"
#include "tessera/ops/attention/decode_schedule.h"

namespace tessera {

// The work list of the blocks of "fa3", in device memory. A worker is a cluster of two blocks.
struct TilePlan {
  const std::int32_t* starts;  // [workers + 1]: index of each worker's first work item
  const TileWork* works;
  std::int64_t workers;
  std::byte* part_results = nullptr;  // results of cut tiles (prefill_attention.h)
  std::int32_t* arrivals = nullptr;   // number of finished parts (prefill_attention.h); 0 between launches
};

// The work of the next extend forward, in host memory.
struct ExtendWork {
  bool tiles = false;                // whether the kernel for requests with several rows has work
  std::int64_t single_blocks = 0;    // number of blocks for requests of a single row; 0: there are no such requests
  std::int64_t single_requests = 0;  // for kFa2: one past the index of the last single-row request
};

// The lists and the partial results of a launch over chunks of keys (attention_schedule.h), in device memory.
struct ChunkedPlan {
  BlockPlan blocks;
  ChunkLimits limits;
  std::byte* partial_values;  // X[blocks, heads, head_dim]: each chunk's output, if keys are cut into chunks
  float* partial_lse;         // [blocks, heads]: log2 of each chunk's Σ exp
};

// The lists and the partial results of a launch over segments of keys (decode_schedule.h), in device memory.
struct SegmentedPlan {
  SegmentPlan lists;
  std::int64_t workers;
  std::byte* partial_values;  // X[most_parts(workers), heads, head_dim]
  float* partial_lse;         // [most_parts(workers), heads]: log2 of each part's Σ exp
  std::int32_t* arrivals;     // [most_parts(workers), kv_heads]: number of finished parts; 0 between launches
};

// The lengths that cuDNN reads in place of attention's metadata, in device memory. Padding requests have lengths of
// zero.
struct SequencePlan {
  std::int32_t* query_lens;  // [max_requests]
  std::int32_t* kv_lens;     // [max_requests]
};

class CudaAttentionPlanner final : public AttentionPlanner {
 public:
  static Result<std::unique_ptr<CudaAttentionPlanner>> create(Device& device, const PlanArgs& args, StepBuffer& step);
  // Returns the bytes of device memory that create() will allocate.
  static Result<std::int64_t> bytes_needed(Device& device, const PlanArgs& args);

  Status plan(const ForwardBatch& batch, std::span<const std::int32_t> wanted_starts, BatchKind kind,
              std::int64_t padded_requests) override;
  std::string_view kernel(const AttentionShape& shape, BatchKind kind) const override;
  std::int64_t bytes() const override;

  // Returns the kernel for the shape; kTessera for a shape that no node of the plan has. A shape with wanted_rows_only
  // runs on the same kernels as the shape that computes all rows. The shape with wanted_rows_only has its own tiles and
  // segments, but both shapes have the same chunks.
  AttentionKernel choice(const AttentionShape& shape, BatchKind kind) const;
  // Returns the kernel for requests of a single row in extend steps: kHopper, kFa2, or kTessera if these rows share
  // tiles with requests of several rows. Precondition of this function and the following ones: for at least one of the
  // two kinds of batches, choice() returns another kernel than kTessera.
  AttentionKernel single_rows(const AttentionShape& shape) const { return find(shape)->single_rows; }
  // These functions return device addresses that are valid for the planner's life. The comment behind each function
  // names a kernel. Precondition: choice() or single_rows() returns this kernel.
  TilePlan tile_plan(const AttentionShape& shape) const;            // kFa3, in extend steps
  TilePlan short_tile_plan(const AttentionShape& shape) const;      // kFa3, for few tokens
  BlockPlan block_plan(const AttentionShape& shape) const;          // kFa2, in extend and deterministic decode steps
  ChunkedPlan chunked_plan(const AttentionShape& shape) const;      // kFa2, in decode steps and for single rows
  SegmentedPlan segmented_plan(const AttentionShape& shape) const;  // kHopper
  SequencePlan sequence_plan(const AttentionShape& shape) const;    // kCudnn, in decode steps
  // Returns the maximum number of tokens of a forward that can use short_tile_plan(), or 0 if no forward can use it.
  std::int64_t short_tile_tokens(const AttentionShape& shape) const { return find(shape)->short_tiles.tokens; }
  // Returns the work of an extend step, or null if requests of a single row share tiles with requests of several rows.
  // If the result is not null, requests of a single row (decodes beside prompts) are in the chunked or segmented plan,
  // and tiles hold only requests of several rows. The reason is that a tile has room for 64 to 192 rows, and a tile
  // with a single row would take as long as a full one. With wanted_rows_only the segmented plan also has the requests
  // of which only the last row is wanted. Every plan() changes the returned ExtendWork.
  const ExtendWork* extend_work(const AttentionShape& shape) const;
  // Returns cuDNN's plans. All operators that are bound with this planner share them.
  cudnn::PlanCache& cudnn_plans() const { return *cudnn_plans_; }
  // Returns [max_requests + 1]: the offset of each request's row in the page table.
  const std::int32_t* page_starts() const {
    return reinterpret_cast<const std::int32_t*>(step_->device_address(page_starts_offset_).raw());
  }

 private:
  // BlockRange, SegmentRange and SequenceRange say where a list lies. The offset of a list is the same in the step
  // buffer's host memory and device memory.
  struct BlockRange {
    std::size_t offset = 0;
    std::int64_t blocks = 0;
    std::int64_t rows = 0;
    std::size_t bytes() const;
    BlockPlan at(std::byte* memory) const;
  };
  struct SegmentRange {
    std::size_t offset = 0;
    std::int64_t requests = 0;
    SegmentLimits limits;
    std::size_t bytes(std::int64_t segments) const;  // size of the list with only `segments` segments
    std::size_t bytes() const { return bytes(most_segments(requests, limits.workers)); }
    SegmentPlan at(std::byte* memory) const;
  };
  struct SequenceRange {
    std::size_t offset = 0;
    std::int64_t requests = 0;
    std::size_t bytes() const;
    SequencePlan at(std::byte* memory) const;
  };
  // Selects one of the two lists of tiles. The first covers all rows, and the second covers only the wanted rows.
  enum class RowList : std::uint8_t { kAll, kWanted };
  static RowList list_of(const AttentionShape& shape) {
    return shape.wanted_rows_only ? RowList::kWanted : RowList::kAll;
  }
  // The rows of a list of tiles: `wanted`, or `all` if `wanted` is empty.
  struct ListRows {
    TiledRows all;
    std::optional<TiledRows> wanted;
  };
  // The memory of the tile lists. It holds the starts of each list, and then the work items of all lists.
  struct TileRange {
    std::optional<TileSchedule> schedule;  // empty: no forward has these tiles
    std::size_t offset = 0;
    std::int64_t tokens = 0;  // maximum number of tokens of a forward with these tiles
    std::int64_t lists = 1;
    std::int64_t works_of_all = 0;     // number of work items now in the list of all rows
    std::int64_t works_of_wanted = 0;  // likewise of wanted rows; 0 if the list shares the items of all rows
    std::size_t bytes(std::int64_t works) const;
    std::size_t bytes() const { return bytes(lists * schedule->max_works()); }
    std::span<std::int32_t> starts(std::byte* memory, RowList list) const;
    std::span<TileWork> works(std::byte* memory) const;
    TilePlan at(std::byte* memory, RowList list) const;
    std::int64_t max_parts() const { return schedule ? schedule->max_parts() : 0; }
  };
  struct ShapePlan {
    AttentionShape shape;
    bool has_wanted = false;  // some nodes of the shape have wanted_rows_only
    AttentionKernel extend = AttentionKernel::kTessera;
    AttentionKernel decode = AttentionKernel::kTessera;
    AttentionKernel single_rows = AttentionKernel::kTessera;
    TileRange tiles;        // read by kFa3 in extend steps
    TileRange short_tiles;  // read by kFa3 for forwards of few tokens
    BlockRange blocks;      // read by kFa2 in extend and deterministic decode steps
    BlockRange chunks;      // read by kFa2 in decode steps and for single rows
    ChunkLimits limits;
    SegmentRange segments;  // read by kHopper in decode steps and for single rows
    ExtendWork work;
    // The counterparts of `blocks`, `segments` and `work` for nodes with wanted_rows_only: they cover only the wanted
    // rows. `tiles` and `short_tiles` need no counterparts, because each holds both lists (RowList) if has_wanted.
    BlockRange wanted_blocks;
    SegmentRange wanted_segments;
    ExtendWork wanted_work;
    SequenceRange sequences;  // read by kCudnn in decode steps
    bool separates_single_rows() const { return single_rows != AttentionKernel::kTessera; }
    bool has_segments() const { return segments.requests > 0; }
    bool has_wanted_segments() const { return wanted_segments.requests > 0; }
  };
  CudaAttentionPlanner() = default;
  // Makes a planner that has chosen its kernels and laid out its lists, but has allocated nothing yet.
  static Result<std::unique_ptr<CudaAttentionPlanner>> decide(Device& device, const PlanArgs& args);
  Result<std::size_t> lay_out(ShapePlan& plan, std::size_t offset, std::int64_t multiprocessors) const;
  void lay_out_partials();
  Status clear_arrivals();
  std::size_t page_starts_bytes() const;
  void write_page_starts();
  Status check(const ForwardBatch& batch, BatchKind kind, std::int64_t padded_requests) const;
  std::size_t lay_out_tiles(ShapePlan& plan, std::size_t offset, std::int64_t multiprocessors) const;
  Result<std::size_t> lay_out_chunks(ShapePlan& plan, std::size_t offset, std::int64_t multiprocessors) const;
  Result<std::size_t> lay_out_segments(ShapePlan& plan, std::size_t offset, std::int64_t multiprocessors) const;
  void plan_extend(ShapePlan& plan, const ForwardBatch& batch);
  void plan_wanted(ShapePlan& plan, const ForwardBatch& batch, std::span<const std::int32_t> wanted_starts);
  static TiledRows tiled_rows(const ShapePlan& plan, const ForwardBatch& batch);
  TiledRows tiled_wanted_rows(const ShapePlan& plan, const ForwardBatch& batch,
                              std::span<const std::int32_t> wanted_starts);
  bool write_tiles(ShapePlan& plan, const ListRows& rows);
  std::int64_t write_works(TileRange& range, const ListRows& rows);
  std::int64_t write_all_works(TileRange& range, const TiledRows& rows);
  std::int64_t write_wanted_works(TileRange& range, const ListRows& rows);
  std::int64_t write_blocks(const ShapePlan& plan, const BlockRange& range, const TiledRows& rows);
  void plan_single_rows(ShapePlan& plan, const ForwardBatch& batch);
  std::int64_t write_segments(const SegmentRange& range, const SegmentedRows& rows);
  std::int64_t copy_segments(const SegmentRange& from, const SegmentRange& to, std::int64_t segments);
  void write_sequences(const ShapePlan& plan, const ForwardBatch& batch);
  void plan_decode(const ShapePlan& plan, const ForwardBatch& batch, std::int64_t rows);
  TilePlan with_parts(TilePlan plan) const;
  std::byte* host() const { return step_->host(list_offset_); }
  std::byte* lists() const { return step_->device_address(list_offset_).raw(); }
  // Returns the plan of the shape. The shape's wanted_rows_only makes no difference.
  const ShapePlan* find(AttentionShape shape) const;

  PlanLimits limits_;
  std::vector<ShapePlan> shapes_;
  StepBuffer* step_ = nullptr;
  std::size_t list_offset_ = 0;  // in the step buffer
  std::size_t list_bytes_ = 0;
  std::size_t partial_bytes_ = 0;
  std::size_t partial_lse_offset_ = 0;
  std::size_t arrivals_offset_ = 0;
  std::unique_ptr<Allocation> partials_;
  std::vector<std::int32_t> first_tiled_;  // [max_requests]: scratch of tiled_wanted_rows()
  std::size_t page_starts_offset_ = 0;     // in the step buffer
  bool page_starts_written_ = false;
  std::unique_ptr<cudnn::PlanCache> cudnn_plans_ = std::make_unique<cudnn::PlanCache>();
};

}  // namespace tessera
