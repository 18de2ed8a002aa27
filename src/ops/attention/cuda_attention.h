// Attention on CUDA: the choice of kernel, and the arguments of its launch.
//
//   "tessera"  our own (attention.cu): head sizes to 512, every dtype, window, softcap and sinks; needs no plan
//   "hopper"   our own for requests of a single row, on Hopper: decode (decode_attention.h)
//   "fa3"      on Hopper: extend, without window, softcap and sinks. Our own kernel for head size 128 with an even
//              number of query heads to a KV head (prefill_attention.h), else FlashInfer's FlashAttention-3
//   "fa2"      FlashInfer's FlashAttention-2, for any GPU: extend, and decode with a KV head's query heads as one tile;
//              with a softcap for head sizes of 128 and more
//   "cudnn"    cuDNN's decode, if the machine has cuDNN and it is asked for
//
// In an extend step that runs on fa3 or fa2, requests of a single row (decodes beside prompts) run on "hopper" or FA2's
// decode kernel, because such a row would leave a tile of the extend kernel nearly empty. With wanted_rows_only,
// "hopper" also takes prompts that want their last row alone.
//
// If the cache has another type than the queries, "tessera" runs. With a cache of f8e4m3 "hopper" runs too, but only in
// steps of single rows.
//
// All kernels but "tessera" need the lists of a CudaAttentionPlanner (cuda_attention_planner.h); without a planner
// "tessera" runs. Deterministic forwards run one kernel for both kinds of batches. It processes all keys of a row in
// one block, in tiles that start at the same keys in every batch: "fa2" if there is neither window nor softcap, else
// "tessera".
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/attention/attention_planner.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/cuda_shared_memory.h"

namespace tessera {

enum class AttentionKernel : std::uint8_t { kTessera, kHopper, kFa3, kFa2, kCudnn };
std::string_view attention_kernel_name(AttentionKernel kernel);

inline constexpr std::int64_t kGreatestOwnHeadDim = 512;

struct AttentionTarget {
  int compute_capability = 0;  // the GPU's: 10 · major + minor
  std::int64_t page_size = 16;
};

// Returns whether this build has the kernel for the shape on the target.
bool attention_kernel_serves(AttentionKernel kernel, const AttentionShape& shape, BatchKind kind,
                             const AttentionTarget& target);
// Checks the name of a kernel. Returns kInvalidArgument if no kernel has this name; "" asks for no particular kernel.
// If cuDNN is asked for and the machine does not have it, the log says why.
Status check_attention_kernel(std::string_view wanted);
// Returns `wanted` if it names a kernel that supports the shape, else the fastest kernel that does.
AttentionKernel choose_attention_kernel(const AttentionShape& shape, BatchKind kind, const AttentionTarget& target,
                                        std::string_view wanted);
// Chooses the kernel for requests of a single row in extend steps; longer requests run on `extend`. kTessera means that
// single rows have tiles like the longer requests. `decode` is the kernel of decode steps.
AttentionKernel choose_single_row_kernel(const AttentionShape& shape, AttentionKernel extend, AttentionKernel decode,
                                         const AttentionTarget& target);
// Chooses the kernel for both kinds of batches in deterministic forwards. `wanted` means the same as above.
AttentionKernel choose_deterministic_attention_kernel(const AttentionShape& shape, const AttentionTarget& target,
                                                      std::string_view wanted);

// One bound attention operator: its addresses in device memory, and the sizes of the bucket. The lengths are in the
// metadata.
struct CudaAttention {
  std::byte* q = nullptr;        // X[num_rows, heads, head_dim]
  std::byte* k_cache = nullptr;  // Y[pages, page_size, kv_heads, head_dim]
  std::byte* v_cache = nullptr;
  std::byte* out = nullptr;      // X[num_rows, heads, head_dim]
  const float* sinks = nullptr;  // [heads]; null: no sinks
  CacheScales scales;            // for a cache of f8e4m3
  AttentionShape shape;          // the dtypes X and Y are shape.dtype and shape.cache_dtype
  std::int64_t num_rows = 0;     // rows of the bucket (T)
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  float scale = 1;
  BatchKind kind = BatchKind::kExtend;
  bool deterministic = false;
  AttentionMetadata metadata;
  std::byte* workspace = nullptr;

  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  // Returns the greatest number of requests that a forward of num_rows rows can have.
  std::int64_t max_requests() const { return num_rows < metadata.max_requests ? num_rows : metadata.max_requests; }
};

// Return the bytes of scratch of our own kernel, which supports every shape, and bind this kernel. `multiprocessors` is
// the count of the device that it will run on.
std::size_t own_attention_workspace_bytes(const CudaAttention& attention, int multiprocessors);
Result<std::unique_ptr<BoundOp>> bind_own_attention(const CudaAttention& attention, int multiprocessors);

}  // namespace tessera
