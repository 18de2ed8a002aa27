#include "tessera/ops/latent/latent_direct.h"

#include <algorithm>

#include "tessera/device/alignment.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"
#include "tessera/ops/cuda/sm90a_code.h"
#include "tessera/ops/latent/latent_direct.cuh"

namespace tessera {
namespace {

using namespace direct_form;
using cuda::LaunchShape;

// A request takes the direct form if it has at least this many new rows. Making a request's keys and values costs as
// much as the absorbed form's additional operations for about 130 rows.
constexpr std::int64_t kLeastRows = 128;
// For each row of the bucket (the padded number of rows), the scratch memory has room for this many keys of
// make_keys(). The keys lie where the absorbed form has its queries and latents, because the two forms use this memory
// one after the other.
constexpr std::int64_t kKeysOfRow = 4;

// The operands, in the order of the declaration.
enum Operand : std::size_t { kQ, kTable, kCache, kKeyMatrices, kValueMatrices, kOut };

bool serves(const BindArgs& args) {
  const LatentSizes sizes = latent_sizes(args);
  const TensorView& q = args.operands[kQ];
  return q.dtype != ir::DType::kFloat32 && args.operands[kCache].dtype == q.dtype && q.dim(1) % kPack == 0 &&
         sizes.latent == kLatent && sizes.width == kWidth && sizes.key == kDim && sizes.value == kDim &&
         !args.context.limits.deterministic && args.context.batch_kind == BatchKind::kExtend && q.dim(0) >= kLeastRows;
}

Problem make_problem(const BindArgs& args, const LatentForms& forms, const AttentionMetadata& metadata) {
  const LatentSizes sizes = latent_sizes(args);
  return {.attention = {.q = nullptr,
                        .k_cache = args.operands[kCache].data.raw(),
                        .v_cache = nullptr,
                        .out = args.operands[kOut].data.raw(),
                        .sinks = nullptr,
                        .partial_values = nullptr,
                        .partial_lse = nullptr,
                        .num_requests = metadata.num_requests,
                        .query_starts = metadata.query_starts,
                        .kv_lens = metadata.kv_lens,
                        .page_table = metadata.page_table,
                        .max_pages = static_cast<int>(metadata.max_pages_per_request),
                        .max_requests = forms.max_requests,
                        .num_rows = forms.num_rows,
                        .heads = static_cast<int>(sizes.heads),
                        .kv_heads = static_cast<int>(sizes.heads),
                        .group = 1,
                        .head_dim = kDim,
                        .page_size = static_cast<int>(sizes.page_size),
                        .window = 0,
                        .splits = 1,
                        .dtype = args.operands[kQ].dtype,
                        .cache_dtype = args.operands[kCache].dtype,
                        .scale = static_cast<float>(args.node.attribute_or("scale", 1.0)),
                        .softcap = 0},
          .q = args.operands[kQ].data.raw(),
          .q_stride = args.operands[kQ].dim(1),
          .table = args.operands[kTable].as<const float>(),
          .interleaved = args.node.attribute_or("interleaved", false),
          .keys = args.operands[kKeyMatrices].data.raw(),
          .values = args.operands[kValueMatrices].data.raw(),
          .made_keys = args.workspace.raw(),
          .made_values = args.workspace.raw() + static_cast<std::int64_t>(forms.capacity) * sizes.heads * kDim * 2,
          .forms = forms};
}

template <class T>
Result<std::unique_ptr<BoundOp>> bind_typed(const Problem& p) {
  constexpr std::size_t kMakeBytes = sizeof(MakeMemory<T>);
  constexpr std::size_t kAttendBytes = sizeof(AttendMemory<T>) + kMatrixBytes;  // the second term is for alignment
  TRY(allow_shared_memory(reinterpret_cast<const void*>(make_keys<T>), kMakeBytes, "latent_attention"));
  TRY(allow_shared_memory(reinterpret_cast<const void*>(attend<T>), kAttendBytes, "latent_attention"));
  const auto heads = static_cast<unsigned>(p.attention.heads);
  const LaunchShape make{
      .grid = dim3(2 * heads, static_cast<unsigned>(tessera::ceil_div(p.forms.num_rows, latent::kKeyRows))),
      .block = dim3(kThreads)};
  // Every request begins a new tile, so up to max_requests tiles may be incomplete.
  const LaunchShape attention{
      .grid = dim3(heads, static_cast<unsigned>(p.forms.num_rows / kRows + p.forms.max_requests)),
      .block = dim3(kThreads)};
  return make_cuda_op("latent_attention", [=](cudaStream_t stream) {
    cuda::launch_with(make_keys<T>, make, kMakeBytes, cuda::can_launch_early(), stream, p);
    cuda::launch_with(attend<T>, attention, kAttendBytes, cuda::can_launch_early(), stream, p);
  });
}

}  // namespace

Result<LatentDirect> find_latent_direct(const BindArgs& args) {
  LatentDirect direct;
  if (!serves(args) || !runs_sm90a_code(reinterpret_cast<const void*>(attend<__nv_bfloat16>))) return direct;
  const std::int64_t rows = args.operands[kQ].dim(0);
  direct.forms.least_rows = static_cast<int>(kLeastRows);
  direct.forms.capacity = static_cast<int>(align_up<std::int64_t>(kKeysOfRow * rows, latent::kKeyRows));
  direct.workspace_bytes = static_cast<std::size_t>(direct.forms.capacity * latent_sizes(args).heads * 2 * kDim) *
                           ir::dtype_size(args.operands[kQ].dtype);
  return direct;
}

Result<std::unique_ptr<BoundOp>> bind_latent_direct(const BindArgs& args, const LatentForms& forms,
                                                    const AttentionMetadata& metadata) {
  const Problem p = make_problem(args, forms, metadata);
  if (args.operands[kQ].dtype == ir::DType::kBFloat16) return bind_typed<__nv_bfloat16>(p);
  return bind_typed<__half>(p);
}

}  // namespace tessera
