#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_lookup.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera {
namespace {

using namespace cuda;

// A thread computes one value of t.
template <class T>
__global__ void adapter_lookup(const AdapterLookupArgs in) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t item = flat_item();
  if (item >= in.rows * in.rank) return;
  const std::int64_t place = in.place(item / in.rank, static_cast<std::int32_t>(item % in.rank));
  in.t[item] = place < 0 ? 0.0F : to_float(static_cast<const T*>(in.a)[place]);
}

Result<std::unique_ptr<BoundOp>> bind_lookup(const BindArgs& args) {
  const AdapterLookupArgs in = adapter_lookup_args(args);
  return cuda::dispatch_dtype(
      args.operands[1].dtype, "adapter_lookup", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
        const LaunchShape shape{.grid = dim3(static_cast<unsigned>(ceil_div(in.rows * in.rank, kBlockThreads))),
                                .block = dim3(kBlockThreads)};
        return make_cuda_op("adapter_lookup",
                            [=](cudaStream_t stream) { launch_early(adapter_lookup<T>, shape, stream, in); });
      });
}

}  // namespace

const KernelDef kAdapterLookupCuda{.op = "adapter_lookup", .name = "cuda", .bind = bind_lookup};

}  // namespace tessera
