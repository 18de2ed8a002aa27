// Attention on the CPU. A forward is cut into tiles by request, KV head and query rows. A thread that has computed a
// tile takes the next one that no thread has taken yet.
#include "tessera/ops/attention/attention_cpu.h"

#include <algorithm>
#include <atomic>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/cpu/cpu_op.h"

namespace tessera {
namespace {

// Returns the number of requests to compute. If the rows of a request do not fit in the p.num_rows rows to which the
// forward is padded, this request and all later ones are left out, so that nothing is written out of bounds. Only a
// defect of the runner causes this.
std::int64_t count_requests(const AttentionProblem& p) {
  std::int64_t num_requests = *p.metadata.num_requests;
  while (num_requests > 0 && p.metadata.query_starts[num_requests] > p.num_rows) --num_requests;
  return num_requests;
}

// Chooses the number of rows of a tile in this forward. Tiles have fewer than kTileRows rows if larger tiles would
// leave threads without work. Keys are converted once for each tile, so tiles of fewer than kLeastTileRows rows cost
// more than they gain.
std::int64_t choose_tile_rows(const AttentionProblem& p, std::int64_t num_requests) {
  constexpr std::int64_t kLeastTileRows = 12;
  constexpr std::int64_t kRegisterRows = 6;  // number of rows of a register tile in cpu_gemm.cpp
  const std::int64_t rows = p.metadata.query_starts[num_requests] * p.heads;
  return std::clamp(round_up((rows + p.workers - 1) / p.workers, kRegisterRows), kLeastTileRows, kTileRows);
}

// Returns the number of tiles to compute for each KV head of the request. These are the tile with the first wanted row
// (ForwardBatch::wanted_rows) and all tiles after this one.
std::int64_t count_tiles(const AttentionProblem& p, std::int64_t request) {
  const std::int64_t tokens = p.metadata.query_starts[request + 1] - p.metadata.query_starts[request];
  const std::int64_t tiles = (tokens * p.group() + p.tile_rows - 1) / p.tile_rows;
  const std::int64_t first = p.wanted_starts == nullptr ? 0 : p.wanted_starts[request];
  return first == tokens ? 0 : tiles - first * p.group() / p.tile_rows;
}

// Writes the index of each request's first work item to the workspace, and returns the array. The array's last entry is
// the total number of items. A work item is one tile of one KV head.
std::int64_t* count_items(const AttentionProblem& p, std::int64_t num_requests) {
  auto* starts = reinterpret_cast<std::int64_t*>(p.workspace);
  std::int64_t count = 0;
  for (std::int64_t b = 0; b < num_requests; ++b) {
    starts[b] = count;
    count += count_tiles(p, b) * p.kv_heads;
  }
  starts[num_requests] = count;
  return starts;
}

AttentionTile make_tile(const AttentionProblem& p, std::int64_t request, std::int64_t item) {
  const std::int64_t query_start = p.metadata.query_starts[request];
  const std::int64_t query_len = p.metadata.query_starts[request + 1] - query_start;
  const std::int64_t rows = query_len * p.group();
  // The last rows see the most keys. Their tiles are processed first, so that no thread is still busy with them when
  // the other threads have no more work.
  const std::int64_t tile = (rows + p.tile_rows - 1) / p.tile_rows - 1 - item / p.kv_heads;
  return {.head = item % p.kv_heads,
          .row_begin = tile * p.tile_rows,
          .row_end = std::min(rows, (tile + 1) * p.tile_rows),
          .query_start = query_start,
          .offset = p.metadata.kv_lens[request] - query_len,
          .pages = p.metadata.page_table + request * p.metadata.max_pages_per_request};
}

std::int64_t index_bytes(std::int64_t max_requests) {
  return round_up((max_requests + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)), kDeviceAlignment);
}

void run(AttentionProblem p, AttendTile attend) {
  const std::int64_t num_requests = count_requests(p);
  p.tile_rows = choose_tile_rows(p, num_requests);
  const std::int64_t* starts = count_items(p, num_requests);
  std::byte* scratch = p.workspace + index_bytes(p.metadata.max_requests);
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min(p.workers, starts[num_requests]), 1, [&](std::int64_t begin, std::int64_t) {
    const AttentionScratch own(reinterpret_cast<float*>(scratch + begin * AttentionScratch::bytes(p.padded_dim())),
                               p.padded_dim());
    for (std::int64_t item = next++; item < starts[num_requests]; item = next++) {
      const std::int64_t request = std::upper_bound(starts, starts + num_requests, item) - starts - 1;
      attend.run(p, make_tile(p, request, item - starts[request]), own);
    }
  });
}

std::int64_t workers(const Device& device) { return std::max(1, device.properties().threads); }

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const TensorView& cache = args.operands[1];
  return attention_workspace_bytes(args, cache_head_dim(cache.dtype, cache.dim(3)));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const TensorView& q = args.operands[0];
  const TensorView& cache = args.operands[1];
  AttentionProblem p{};
  p.q = q.data.raw();
  p.k_cache = cache.data.raw();
  p.v_cache = args.operands[2].data.raw();
  p.out = args.operands[3].data.raw();
  p.sinks = has_sinks(args.operands.size(), cache.dtype) ? args.operands[4].as<float>() : nullptr;
  p.cache_scales = cache_scales(args, cache.dtype);
  p.num_rows = q.dim(0);
  p.head_dim = p.value_dim = cache_head_dim(cache.dtype, cache.dim(3));
  p.heads = q.dim(1) / p.head_dim;
  p.kv_heads = cache.dim(2);
  p.page_size = cache.dim(1);
  p.window = args.node.attribute_or("window", std::int64_t{0});
  p.scale = static_cast<float>(args.node.attribute_or("scale", 1.0));
  p.softcap = static_cast<float>(args.node.attribute_or("softcap", 0.0));
  return bind_attention_tiles(args, p, cache.dtype, "attention");
}

Result<std::unique_ptr<OpPlan>> make_plan(Device& device, const PlanArgs& args, StepBuffer& step) {
  return TRY(AttentionPlan::create(device, args, step, nullptr));
}

Result<std::int64_t> plan_bytes(Device& /*device*/, const PlanArgs& args) { return AttentionPlan::bytes_needed(args); }

}  // namespace

std::size_t attention_workspace_bytes(const BindArgs& args, std::int64_t head_dim) {
  AttentionProblem sizes{};
  sizes.head_dim = head_dim;
  return static_cast<std::size_t>(index_bytes(args.context.limits.max_requests) +
                                  workers(args.device) * AttentionScratch::bytes(sizes.padded_dim()));
}

Result<std::unique_ptr<BoundOp>> bind_attention_tiles(const BindArgs& args, AttentionProblem problem,
                                                      ir::DType cache_dtype, const char* name) {
  const AttentionPlan* plan = TRY(find_attention_plan(args));
  problem.metadata = plan->metadata();
  if (args.node.attribute_or(kWantedRowsOnly, false)) problem.wanted_starts = problem.metadata.wanted_starts;
  problem.workspace = args.workspace.raw();
  problem.workers = workers(args.device);
  problem.deterministic = args.context.limits.deterministic;
  const AttendTile attend = TRY(find_attend_tile(args.operands[0].dtype, cache_dtype));
  return make_cpu_op(name, [problem, attend] { run(problem, attend); });
}

const OpPlanner kCpuAttentionPlanner{.make = make_plan, .bytes_needed = plan_bytes};

const KernelDef kAttentionCpu{.op = "attention",
                              .name = "cpu",
                              .bind = bind,
                              .workspace_bytes = workspace_bytes,
                              .planner = &kCpuAttentionPlanner};

}  // namespace tessera
