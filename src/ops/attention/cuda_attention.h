// Attention on CUDA: the choice of kernel, and the arguments of its launch. The kernels are:
//
//   "tessera"  our own (attention.cu): head sizes up to 512, every dtype, window, softcap and sinks
//   "hopper"   our own for decode on Hopper (decode_attention.h)
//   "fa3"      our own for extend on Hopper, modelled on FlashAttention-3, without softcap (prefill_attention.h)
//   "fa2"      FlashInfer's FlashAttention-2, on any GPU: extend, and decode with the query heads of a KV head as one
//              tile; a softcap only with heads of 128 elements or more
//   "cudnn"    cuDNN's decode, if the user asks for it and the machine has cuDNN
//
// An extend step that runs on "fa3" or "fa2" may have requests of a single row (decodes beside prompts). These requests
// run on "hopper" or FA2's decode kernel, because such a row would leave a tile of the extend kernel nearly empty. With
// wanted_rows_only, "hopper" also computes the last row of a prompt if only this row of the prompt is wanted.
//
// Over a cache of f8e4m3, decode steps run on "hopper" and extend steps on "fa3" where these kernels support the shape.
// In all other cases in which the cache has another type than the queries, "tessera" runs.
//
// All kernels but "tessera" need the work lists of a CudaAttentionPlanner (cuda_attention_planner.h). Without a planner
// "tessera" runs.
//
// Deterministic forwards run the same kernel for extend and decode batches: "fa2" if there is neither window nor
// softcap, else "tessera". Both kernels then process all keys of a row in one block, in tiles that start at the same
// keys in every batch.
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
  int compute_capability = 0;  // 10 · major + minor of the GPU
  std::int64_t page_size = 16;
};

// Returns whether this build has the kernel, and the kernel supports the shape and the kind of batch on the target.
bool attention_kernel_serves(AttentionKernel kernel, const AttentionShape& shape, BatchKind kind,
                             const AttentionTarget& target);
// Checks the name of a kernel. Returns kInvalidArgument if no kernel has this name. The empty name is accepted and asks
// for no particular kernel. If the name is "cudnn" and the machine cannot run cuDNN, the log says why.
Status check_attention_kernel(std::string_view wanted);
// Returns `wanted` if it names a kernel that supports the shape. Otherwise returns the first kernel that does, in the
// order of preference of cuda_attention.cpp, or kTessera if none does.
AttentionKernel choose_attention_kernel(const AttentionShape& shape, BatchKind kind, const AttentionTarget& target,
                                        std::string_view wanted);
// Chooses the kernel for requests of a single row in extend steps. `extend` is the kernel for requests of several rows,
// and `decode` is the kernel of decode steps. The result kTessera means that `extend` also computes requests of a
// single row, in tiles.
AttentionKernel choose_single_row_kernel(const AttentionShape& shape, AttentionKernel extend, AttentionKernel decode,
                                         const AttentionTarget& target);
// Chooses the kernel for both kinds of batches in deterministic forwards. `wanted` has the same meaning as in
// choose_attention_kernel().
AttentionKernel choose_deterministic_attention_kernel(const AttentionShape& shape, const AttentionTarget& target,
                                                      std::string_view wanted);

// One bound attention operator: its addresses in device memory, and the sizes to which a forward is padded. The actual
// lengths are in the metadata.
struct CudaAttention {
  std::byte* q = nullptr;        // X[num_rows, heads, head_dim]
  std::byte* k_cache = nullptr;  // Y[pages, page_size, kv_heads, head_dim]
  std::byte* v_cache = nullptr;
  std::byte* out = nullptr;      // X[num_rows, heads, head_dim]
  const float* sinks = nullptr;  // [heads]; null: no sinks
  CacheScales scales;            // for a cache of f8e4m3
  AttentionShape shape;          // the dtypes X and Y are shape.dtype and shape.cache_dtype
  std::int64_t num_rows = 0;     // number of rows, including padding (T)
  std::int64_t num_pages = 0;
  std::int64_t page_size = 16;
  float scale = 1;
  BatchKind kind = BatchKind::kExtend;
  bool deterministic = false;
  AttentionMetadata metadata;
  std::byte* workspace = nullptr;

  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  // Returns the maximum number of requests of a forward of num_rows rows.
  std::int64_t max_requests() const { return num_rows < metadata.max_requests ? num_rows : metadata.max_requests; }
};

// own_attention_workspace_bytes() returns the bytes of scratch that our own kernel needs, and bind_own_attention()
// binds this kernel. The kernel supports every shape with heads of up to kGreatestOwnHeadDim elements. For larger
// heads, bind_own_attention() returns kUnimplemented. `multiprocessors` is the device's number of multiprocessors.
std::size_t own_attention_workspace_bytes(const CudaAttention& attention, int multiprocessors);
Result<std::unique_ptr<BoundOp>> bind_own_attention(const CudaAttention& attention, int multiprocessors);

}  // namespace tessera
