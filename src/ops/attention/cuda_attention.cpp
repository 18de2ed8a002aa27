// Chooses and binds attention's kernel on CUDA.
#include "tessera/ops/attention/cuda_attention.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/attention/cuda_attention_planner.h"
#include "tessera/ops/attention/cudnn/attention.h"
#include "tessera/ops/attention/decode_attention.h"
#include "tessera/ops/attention/flashinfer/kernels.h"
#include "tessera/ops/attention/prefill_attention.h"
#include "tessera/ops/contract/forward_states.h"

namespace tessera {
namespace {

// The kernels in order of preference. "tessera" supports every shape that the kernels after it support, so a kernel
// after it runs only if the user names it.
constexpr std::array kForExtend{AttentionKernel::kFa3, AttentionKernel::kFa2, AttentionKernel::kTessera};
// cuDNN's kernel comes last although it is 2 to 20 % faster than FA2 (attention_bench on an H200). The reason is that
// cuDNN builds a kernel for each number of rows, and each build takes 40 to 500 ms.
constexpr std::array kForDecode{AttentionKernel::kHopper, AttentionKernel::kFa2, AttentionKernel::kTessera,
                                AttentionKernel::kCudnn};

// Describes the operator, without the plan's addresses.
CudaAttention describe(const BindArgs& args) {
  const TensorView& q = args.operands[0];
  const TensorView& cache = args.operands[1];
  const bool sinks = has_sinks(args.operands.size(), cache.dtype);
  return CudaAttention{.q = q.data.raw(),
                       .k_cache = cache.data.raw(),
                       .v_cache = args.operands[2].data.raw(),
                       .out = args.operands[3].data.raw(),
                       .sinks = sinks ? args.operands[4].as<float>() : nullptr,
                       .scales = cache_scales(args, cache.dtype),
                       .shape = {.dtype = q.dtype,
                                 .cache_dtype = cache.dtype,
                                 .heads = q.dim(1) / cache.dim(3),
                                 .kv_heads = cache.dim(2),
                                 .head_dim = cache.dim(3),
                                 .window = args.node.attribute_or("window", std::int64_t{0}),
                                 .softcap = args.node.attribute_or("softcap", 0.0),
                                 .sinks = sinks,
                                 .wanted_rows_only = args.node.attribute_or(kWantedRowsOnly, false)},
                       .num_rows = q.dim(0),
                       .num_pages = cache.dim(0),
                       .page_size = cache.dim(1),
                       .scale = static_cast<float>(args.node.attribute_or("scale", 1.0)),
                       .kind = args.context.batch_kind,
                       .deterministic = args.context.limits.deterministic,
                       .metadata = {.max_requests = args.context.limits.max_requests,
                                    .max_pages_per_request = args.context.limits.max_pages_per_request},
                       .workspace = args.workspace.raw()};
}

// An extend step in two launches: one for requests of a single row, and one for the tiles of requests of several rows.
// Most steps need only one of the two launches. A full graph (the graph of a whole forward) runs only batches without
// single-row requests. If `states_` is not null, the recording of a full graph therefore leaves out the first launch.
class ExtendInTwo final : public BoundOp {
 public:
  ExtendInTwo(std::unique_ptr<BoundOp> single_rows, std::unique_ptr<BoundOp> tiles, const ExtendWork& work,
              const ForwardStates* states)
      : single_rows_(std::move(single_rows)), tiles_(std::move(tiles)), work_(work), states_(states) {}
  Status enqueue(Stream& stream) const override {
    if (states_ == nullptr || !states_->in(ForwardState::kFull)) TRY(single_rows_->enqueue(stream));
    return work_.tiles || stream.recording() ? tiles_->enqueue(stream) : ok_status();
  }

 private:
  // Identifies the kernels that this operator runs, so that their code is loaded before a capture. The type of `tiles_`
  // suffices, because it also determines the single-row kernel, whose code was loaded at bind.
  std::uint64_t choice() const override { return tiles_->variant().type.hash_code(); }

  std::unique_ptr<BoundOp> single_rows_;
  std::unique_ptr<BoundOp> tiles_;
  const ExtendWork& work_;
  const ForwardStates* states_;  // null: `single_rows_` is launched in every state
};

Result<std::unique_ptr<BoundOp>> bind_fa3(const CudaAttention& attention, const CudaAttentionPlanner& planner) {
  if (attention.num_rows <= planner.short_tile_tokens(attention.shape))
    return bind_short_prefill_attention(attention, planner.short_tile_plan(attention.shape));
  return bind_prefill_attention(attention, planner.tile_plan(attention.shape));
}

Result<std::unique_ptr<BoundOp>> bind_extend(AttentionKernel tiles, const CudaAttention& attention,
                                             const CudaAttentionPlanner& planner, const ForwardStates* states) {
  std::unique_ptr<BoundOp> op =
      TRY(tiles == AttentionKernel::kFa3 ? bind_fa3(attention, planner) : flashinfer::bind_fa2(attention, planner));
  const ExtendWork* work = planner.extend_work(attention.shape);
  if (work == nullptr) return op;
  const bool hopper = planner.single_rows(attention.shape) == AttentionKernel::kHopper;
  std::unique_ptr<BoundOp> single_rows =
      TRY(hopper ? bind_decode_attention(attention, planner) : flashinfer::bind_fa2_single_rows(attention, planner));
  // A full graph normally leaves out the launch for single rows. But with "hopper" and wanted_rows_only, this launch
  // also computes the last row of a request of several rows if only this row is wanted. In this case a full graph needs
  // the launch. ExtendInTwo therefore gets no states, so that it never leaves the launch out.
  const bool takes_last_rows = hopper && attention.shape.wanted_rows_only;
  return std::make_unique<ExtendInTwo>(std::move(single_rows), std::move(op), *work,
                                       takes_last_rows ? nullptr : states);
}

int multiprocessors(const BindArgs& args) { return std::max(1, args.device.properties().threads); }

// Returns the bytes of scratch that our own kernel needs, even if another kernel will run. The plan chooses the kernel,
// and this function does not know the plan. No other kernel uses the workspace.
Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const CudaAttention attention = describe(args);
  return own_attention_workspace_bytes(attention, multiprocessors(args));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  CudaAttention attention = describe(args);
  const AttentionPlan* plan = TRY(find_attention_plan(args));
  attention.metadata = plan->metadata();
  TRY(static_cast<CudaDevice&>(args.device).make_current());  // bind sets kernel attributes of the current device
  const auto* planner = static_cast<const CudaAttentionPlanner*>(plan->planner());
  AttentionKernel kernel = AttentionKernel::kTessera;
  if (planner != nullptr) kernel = planner->choice(attention.shape, attention.kind);
  if (attention.kind == BatchKind::kExtend && kernel != AttentionKernel::kTessera)
    return bind_extend(kernel, attention, *planner, args.context.states);
  switch (kernel) {
    case AttentionKernel::kFa3: return bind_fa3(attention, *planner);
    case AttentionKernel::kHopper: return bind_decode_attention(attention, *planner);
    case AttentionKernel::kFa2: return flashinfer::bind_fa2(attention, *planner);
    case AttentionKernel::kCudnn:
      return cudnn::bind_attention(attention, *planner, planner->cudnn_plans(), args.device);
    case AttentionKernel::kTessera: break;
  }
  return bind_own_attention(attention, multiprocessors(args));
}

// Makes attention's plan. If `args` has no attention nodes, the plan has no planner, and our own kernel runs.
Result<std::unique_ptr<OpPlan>> make_plan(Device& device, const PlanArgs& args, StepBuffer& step) {
  std::unique_ptr<AttentionPlanner> planner;
  if (!args.nodes.empty()) planner = TRY(CudaAttentionPlanner::create(device, args, step));
  return TRY(AttentionPlan::create(device, args, step, std::move(planner)));
}

Result<std::int64_t> plan_bytes(Device& device, const PlanArgs& args) {
  const std::int64_t lists = AttentionPlan::bytes_needed(args);
  return args.nodes.empty() ? lists : lists + TRY(CudaAttentionPlanner::bytes_needed(device, args));
}

const OpPlanner kPlanner{.make = make_plan, .bytes_needed = plan_bytes};

}  // namespace

std::string_view attention_kernel_name(AttentionKernel kernel) {
  switch (kernel) {
    case AttentionKernel::kTessera: return "tessera";
    case AttentionKernel::kHopper: return "hopper";
    case AttentionKernel::kFa3: return "fa3";
    case AttentionKernel::kFa2: return "fa2";
    case AttentionKernel::kCudnn: return "cudnn";
  }
  return "?";
}

bool attention_kernel_serves(AttentionKernel kernel, const AttentionShape& shape, BatchKind kind,
                             const AttentionTarget& target) {
  const int compute_capability = target.compute_capability;
  const bool one_type = shape.cache_dtype == shape.dtype;
  switch (kernel) {
    case AttentionKernel::kHopper: return kind == BatchKind::kDecode && decode_attention_serves(shape, target);
    case AttentionKernel::kTessera: return shape.head_dim <= kGreatestOwnHeadDim;
    case AttentionKernel::kFa3: return kind == BatchKind::kExtend && serves_prefill_attention(shape, target);
    case AttentionKernel::kFa2: return one_type && flashinfer::fa2_serves(shape, kind, compute_capability);
    case AttentionKernel::kCudnn: return one_type && cudnn::attention_serves(shape, kind, compute_capability);
  }
  return false;
}

Status check_attention_kernel(std::string_view wanted) {
  if (wanted.empty()) return ok_status();
  for (const AttentionKernel kernel : {AttentionKernel::kHopper, AttentionKernel::kFa3, AttentionKernel::kFa2,
                                       AttentionKernel::kCudnn, AttentionKernel::kTessera}) {
    if (attention_kernel_name(kernel) != wanted) continue;
    if (kernel != AttentionKernel::kCudnn) return ok_status();
    const Status available = cudnn::check_available();
    if (!available.ok()) log_warn("attention", "{}; another kernel runs", available.message());
    return ok_status();
  }
  return invalid_argument(
      fmt::format("attention has no kernel \"{}\"; there are hopper, fa3, fa2, cudnn and tessera", wanted));
}

AttentionKernel choose_attention_kernel(const AttentionShape& shape, BatchKind kind, const AttentionTarget& target,
                                        std::string_view wanted) {
  const auto choose = [&](const auto& kernels) {
    const auto serves = [&](AttentionKernel kernel) { return attention_kernel_serves(kernel, shape, kind, target); };
    for (const AttentionKernel kernel : kernels)
      if (attention_kernel_name(kernel) == wanted && serves(kernel)) return kernel;
    const auto first = std::find_if(kernels.begin(), kernels.end(), serves);
    return first == kernels.end() ? AttentionKernel::kTessera : *first;  // its bind() reports unsupported shapes
  };
  return kind == BatchKind::kExtend ? choose(kForExtend) : choose(kForDecode);
}

AttentionKernel choose_single_row_kernel(const AttentionShape& shape, AttentionKernel extend, AttentionKernel decode,
                                         const AttentionTarget& target) {
  if (extend == AttentionKernel::kTessera) return AttentionKernel::kTessera;
  constexpr std::array kKernels{AttentionKernel::kHopper, AttentionKernel::kFa2};
  if (std::find(kKernels.begin(), kKernels.end(), decode) != kKernels.end()) return decode;
  for (const AttentionKernel kernel : kKernels)
    if (attention_kernel_serves(kernel, shape, BatchKind::kDecode, target)) return kernel;
  return AttentionKernel::kTessera;
}

AttentionKernel choose_deterministic_attention_kernel(const AttentionShape& shape, const AttentionTarget& target,
                                                      std::string_view wanted) {
  // With a window, FA2 starts its tiles of keys at the first key that the first row of a row tile sees. So a row's bits
  // would depend on the row's place in the row tile. The deterministic variant of FA2 (Fa2Exact) has no softcap. For
  // these two reasons FA2 runs only without window and softcap.
  const bool fa2 = shape.window == 0 && shape.softcap == 0 &&
                   attention_kernel_serves(AttentionKernel::kFa2, shape, BatchKind::kExtend, target) &&
                   wanted != attention_kernel_name(AttentionKernel::kTessera);
  return fa2 ? AttentionKernel::kFa2 : AttentionKernel::kTessera;
}

const KernelDef kAttentionCuda{
    .op = "attention", .name = "cuda", .bind = bind, .workspace_bytes = workspace_bytes, .planner = &kPlanner};

}  // namespace tessera
