#include "tessera/base/ceil_div.h"
#include "tessera/ops/adapters/adapter_products.cuh"
#include "tessera/ops/adapters/adapter_whole.h"
#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_math.cuh"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/cuda/is_aligned.h"

namespace tessera {
namespace cuda::adapters {
namespace {

// Each block copies one row. Element is the type of an element of w, or a pack of 16 bytes.
template <class Element>
__global__ void whole_embedding(const AdapterWholeEmbeddingArgs in, const std::int64_t elements) {
  let_next_begin();
  wait_for_previous();
  const std::int64_t row = blockIdx.x;
  const std::int64_t source = in.source(row);
  if (source < 0) return;
  const Element* const from = static_cast<const Element*>(in.w) + source * elements;
  Element* const to = static_cast<Element*>(in.y) + row * elements;
  for (std::int64_t i = threadIdx.x; i < elements; i += blockDim.x) to[i] = from[i];
}

template <class Element>
std::unique_ptr<BoundOp> make_embedding(const AdapterWholeEmbeddingArgs& in, std::int64_t elements) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(in.rows)), .block = dim3(kBlockThreads)};
  return make_cuda_op("adapter_whole_embedding", [=](cudaStream_t stream) {
    if (in.rows > 0) launch_early(whole_embedding<Element>, shape, stream, in, elements);
  });
}

Result<std::unique_ptr<BoundOp>> bind_whole_embedding(const BindArgs& args) {
  const AdapterWholeEmbeddingArgs in = adapter_whole_embedding_args(args);
  return dispatch_dtype(args.operands[0].dtype, "adapter_whole_embedding",
                        [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
                          if (in.cols % kPackSize<T> == 0 && is_aligned(in.y) && is_aligned(in.w))
                            return make_embedding<uint4>(in, in.cols / kPackSize<T>);
                          return make_embedding<T>(in, in.cols);
                        });
}

Result<std::unique_ptr<BoundOp>> bind_whole_linear(const BindArgs& args) {
  constexpr const char* kName = "adapter_whole_linear";
  const AdapterWholeLinearArgs in = adapter_whole_linear_args(args);
  return dispatch_dtype(args.operands[0].dtype, kName, [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    if constexpr (sizeof(T) == 2) {
      if (fits_tiles<T>(in)) return make_product_of_many<T>(kName, in);
    }
    return make_product_of_values<T>(kName, in);
  });
}

}  // namespace
}  // namespace cuda::adapters

const KernelDef kAdapterWholeLinearCuda{
    .op = "adapter_whole_linear", .name = "cuda", .bind = cuda::adapters::bind_whole_linear};
const KernelDef kAdapterWholeEmbeddingCuda{
    .op = "adapter_whole_embedding", .name = "cuda", .bind = cuda::adapters::bind_whole_embedding};

}  // namespace tessera
