// Computes the gated delta net on CUDA. The row-by-row kernel of delta_net_rows.cuh computes requests with few rows,
// requests with drafts or accepted drafts, and heads that the chunked form does not support. It also computes all
// requests of decode steps, of deterministic forwards and of float32 operands.
//
// Tensor cores compute all other requests in chunks, one window of chunks after the other. Two kernels process each
// window. The kernel of delta_net_prepare.cuh processes all chunks of the window in parallel. Then the kernel of
// delta_net_chunks.cuh processes the chunks of each request one after the other.
//
// Recorded launches depend only on the number of rows for which the operator is bound, padding included. Other launches
// depend on the planned forward too: run_rows() has a block for each item, and windows end with the last chunk. Blocks
// find their requests in the plan's memory when they run, and each block processes every gridDim.x-th work item.
#include "tessera/ops/recurrent/gated_delta_net.h"

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/recurrent/delta_net_chunks.cuh"
#include "tessera/ops/recurrent/delta_net_prepare.cuh"
#include "tessera/ops/recurrent/delta_net_rows.cuh"

namespace tessera {
namespace {

using namespace delta_net;

constexpr int kLeastChunkRows = 16;

// Returns the launch shape for up to `items` work items. There is one block for each item, but at most as many blocks
// as the device can run at once.
Result<LaunchShape> work_shape(const void* kernel, int threads, std::size_t shared_bytes, std::int64_t items,
                               const Device& device) {
  const int resident = TRY(blocks_per_multiprocessor(kernel, threads, shared_bytes, "gated_delta_net"));
  const std::int64_t most = static_cast<std::int64_t>(resident) * std::max(1, device.properties().threads);
  return LaunchShape{.grid = dim3(static_cast<unsigned>(std::min(items, most))),
                     .block = dim3(static_cast<unsigned>(threads))};
}

// Launches run_rows(). A grid of one block for each item is the fastest, because a block that starts when another block
// ends can load its data while other blocks compute. Blocks without an item cost time: 14 000 of them take 15 us on an
// H200. The number of items depends on the number of requests.
//
// A launch outside a recording reads this number from the plan. In a recording, only decode steps without drafts have a
// known number of requests. Otherwise `most_items` is an upper bound, which counts every row as a request. Decode steps
// with drafts then have at most kDraftWaves times as many blocks as can be resident. Forwards with prompts have at most
// as many blocks as can be resident, because those that are recorded as a whole have few requests.
template <class T, int kHeld>
class RowsKernel {
 public:
  static Result<RowsKernel> create(const BindArgs& args, const DeltaNet<T>& p, const StatePlan& plan,
                                   std::int64_t most_items) {
    constexpr std::int64_t kDraftWaves = 16;
    const LaunchShape resident =
        TRY(work_shape(reinterpret_cast<const void*>(run_rows<T, kHeld>), kRowThreads, 0, most_items, args.device));
    std::int64_t recorded = resident.grid.x;
    if (args.context.batch_kind == BatchKind::kDecode)
      recorded = p.held_drafts == 0 ? most_items : std::min(most_items, kDraftWaves * recorded);
    return RowsKernel(plan, most_items, recorded);
  }

  void launch(const DeltaNet<T>& p, cudaStream_t stream) const {
    const std::int64_t items =
        std::clamp<std::int64_t>(std::ssize(plan_->query_lens()) * p.heads * p.slices, 1, most_items_);
    const std::int64_t blocks = is_recording(stream) ? recorded_blocks_ : items;
    launch_early(run_rows<T, kHeld>, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kRowThreads)}, stream,
                 p);
  }

 private:
  RowsKernel(const StatePlan& plan, std::int64_t most_items, std::int64_t recorded_blocks)
      : plan_(&plan), most_items_(most_items), recorded_blocks_(recorded_blocks) {}

  const StatePlan* plan_;
  std::int64_t most_items_;
  std::int64_t recorded_blocks_;
};

template <class T, int kHeld>
Result<std::unique_ptr<BoundOp>> bind_rows_kernel(const BindArgs& args, const DeltaNet<T>& p, const StatePlan& plan,
                                                  std::int64_t items) {
  const auto kernel = TRY((RowsKernel<T, kHeld>::create(args, p, plan, items)));
  return make_cuda_op("gated_delta_net", [=](cudaStream_t stream) { kernel.launch(p, stream); });
}

// The maximum size, in bytes, of the operands that the first kernel passes to the second kernel for one window.
constexpr std::int64_t kWindowBytes = 128 << 20;

// The chunked form's settings for the number of rows for which the operator is bound.
struct ChunkedForm {
  bool serves = false;      // false: the recurrent kernel computes all rows
  std::int64_t chunks = 0;  // maximum number of chunks in a forward
  std::int64_t window = 0;  // number of chunks in a window
  std::int64_t heads = 0;

  std::int64_t blocks() const { return window * kBlocks * heads; }
  std::size_t operand_bytes() const { return static_cast<std::size_t>(blocks()) * sizeof(BlockOperands); }
  std::size_t decay_bytes() const { return static_cast<std::size_t>(blocks()) * sizeof(float); }
};

ChunkedForm chunked_form(const BindArgs& args) {
  const TensorView& state = args.operands[4];
  const std::int64_t rows = args.operands[0].dim(0);
  const auto takes = [](std::int64_t dim) { return dim <= kChunkDim && dim % kPack == 0; };
  ChunkedForm form{.serves = args.operands[0].dtype != ir::DType::kFloat32 && !args.context.limits.deterministic &&
                             args.context.batch_kind == BatchKind::kExtend && rows >= kLeastChunkRows &&
                             takes(state.dim(2)) && takes(state.dim(3)),
                   .heads = state.dim(1)};
  if (!form.serves) return form;
  // In the worst case, each request has two chunks of a single row: the last one before a checkpoint and the last one.
  const std::int64_t requests = std::min(args.context.limits.max_requests, rows / kLeastChunkRows);
  form.chunks = (rows + 2 * (kChunk - 1) * requests) / kChunk;
  const std::int64_t chunk_bytes = kBlocks * form.heads * static_cast<std::int64_t>(sizeof(BlockOperands));
  form.window = std::clamp<std::int64_t>(kWindowBytes / chunk_bytes, 1, form.chunks);
  return form;
}

// Returns an upper bound of the number of chunks of a forward whose requests have these numbers of rows.
std::int64_t most_chunks(std::span<const std::int32_t> query_lens) {
  std::int64_t chunks = 0;
  for (const std::int32_t rows : query_lens)
    if (rows >= kLeastChunkRows) chunks += ceil_div(rows, kChunk) + 1;  // a chunk may end at a checkpoint
  return chunks;
}

// Binds all kernels: first the kernel for requests of few rows, then the kernels of the chunked form.
template <class T, int kStages>
Result<std::unique_ptr<BoundOp>> bind_chunked(const BindArgs& args, DeltaNet<T> p, const StatePlan& plan,
                                              const ChunkedForm& form, std::int64_t items) {
  p.least_chunk_rows = kLeastChunkRows;
  p.window_chunks = static_cast<int>(form.window);
  p.operands = reinterpret_cast<BlockOperands*>(args.workspace.raw());
  p.decays = reinterpret_cast<float*>(args.workspace.raw() + form.operand_bytes());
  constexpr std::size_t kPrepareBytes = sizeof(PrepareMemory<T>);
  constexpr std::size_t kChunkBytes = sizeof(ChunkMemory<T, kStages>);
  const auto few_rows = TRY((RowsKernel<T, 32>::create(args, p, plan, items)));
  const LaunchShape prepare_shape = TRY(work_shape(reinterpret_cast<const void*>(prepare_chunks<T>), kChunkThreads,
                                                   kPrepareBytes, form.window * form.heads, args.device));
  const LaunchShape chunk_shape = TRY(work_shape(reinterpret_cast<const void*>(run_chunks<T, kStages>), kChunkThreads,
                                                 kChunkBytes, items, args.device));
  return make_cuda_op("gated_delta_net", [=, &plan, bound = form.chunks](cudaStream_t stream) {
    const std::int64_t chunks = is_recording(stream) ? bound : std::min(bound, most_chunks(plan.query_lens()));
    few_rows.launch(p, stream);
    for (DeltaNet<T> window = p; window.first_chunk < chunks; window.first_chunk += window.window_chunks) {
      launch_with(prepare_chunks<T>, prepare_shape, kPrepareBytes, can_launch_early(), stream, window);
      launch_with(run_chunks<T, kStages>, chunk_shape, kChunkBytes, can_launch_early(), stream, window);
    }
  });
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed(const BindArgs& args, const StatePlan& plan) {
  const StateMetadata metadata = plan.metadata();
  const TensorView& state = args.operands[4];
  DeltaNet<T> p{.qkv = args.operands[0].as<T>(),
                .ba = args.operands[1].as<T>(),
                .a_log = args.operands[2].as<float>(),
                .dt_bias = args.operands[3].as<float>(),
                .state = state.as<float>(),
                .draft_rows = args.operands.size() > 5 ? args.operands[5].as<T>() : nullptr,
                .y = args.results[0].as<T>(),
                .num_rows = args.operands[0].dim(0),
                .key_heads = static_cast<int>(args.node.attribute_or("key_heads", std::int64_t{1})),
                .heads = static_cast<int>(state.dim(1)),
                .key_dim = static_cast<int>(state.dim(2)),
                .value_dim = static_cast<int>(state.dim(3)),
                .held_drafts = static_cast<int>(args.node.attribute_or("drafts", std::int64_t{0})),
                .slices = static_cast<int>(ceil_div(state.dim(3), kSliceColumns)),
                .least_chunk_rows = INT_MAX,
                .metadata = metadata,
                .first_chunk = 0,
                .window_chunks = 0,
                .operands = nullptr,
                .decays = nullptr};
  const std::int64_t items = std::min(p.num_rows, metadata.max_requests) * p.heads * p.slices;
  if constexpr (!std::is_same_v<T, float>) {
    const ChunkedForm form = chunked_form(args);
    if (form.serves) {
      // A block has two stages if every block of one request can have a multiprocessor for itself, and two stages fit
      // in its shared memory. Otherwise it has one stage, so that two blocks fit on a multiprocessor.
      const bool alone = p.heads * p.slices <= args.device.properties().threads &&
                         TRY(most_shared_memory("gated_delta_net")) >= sizeof(ChunkMemory<T, 2>);
      return alone ? bind_chunked<T, 2>(args, p, plan, form, items) : bind_chunked<T, 1>(args, p, plan, form, items);
    }
  }
  if (p.key_dim <= 128) return bind_rows_kernel<T, 32>(args, p, plan, items);
  if (p.key_dim <= 256) return bind_rows_kernel<T, 64>(args, p, plan, items);
  return unimplemented("gated_delta_net takes keys of up to 256 dimensions, not " + std::to_string(p.key_dim));
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const ChunkedForm form = chunked_form(args);
  return form.operand_bytes() + form.decay_bytes();
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const StatePlan* const plan = TRY(find_state_plan(args));
  return dispatch_dtype(args.operands[0].dtype, "gated_delta_net",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> { return bind_typed<T>(args, *plan); });
}

}  // namespace

const KernelDef kGatedDeltaNetCuda{.op = "gated_delta_net",
                                   .name = "cuda",
                                   .bind = bind,
                                   .workspace_bytes = workspace_bytes,
                                   .planner = &kStatePlanner};

}  // namespace tessera
