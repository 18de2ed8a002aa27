// CUDA's kernels for a linear. linear.cu chooses among them at bind time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/cuda/is_aligned.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera {

class Json;  // nvcc's front end cannot compile base/json.h

// Returns whether our own kernels for 16-bit types may run. They may if the forward is not deterministic, and if x and
// w can be copied 16 bytes at a time.
inline bool allows_own_kernels(const BindArgs& args, const LinearProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && !args.context.limits.deterministic && p.k > 0 && p.n > 0 && is_aligned(p.x) && is_aligned(p.w);
}

// Binds the kernel for a few rows, for any sizes. It reads the weights once for every four rows, or once for each row
// if the size of a row is no multiple of 16 bytes. Its speed is limited by memory bandwidth, which also bounds a decode
// of few requests. A row's bits do not depend on the number of rows.
Result<std::unique_ptr<BoundOp>> bind_cuda_few_rows(const LinearProblem& problem);

// Returns whether the streamed kernel supports the linear and is the fastest. It supports up to 8 rows of a 16-bit
// type, or up to 16 with a small matrix. w must be a weight whose rows and columns fill whole tiles. The kernel needs
// Hopper and a forward that is not deterministic.
bool can_stream(const BindArgs& args);
// Binds the kernel that loads weights before the preceding kernels have ended (linear_streamed.cuh). Sums have one
// order for all row counts. Precondition: can_stream().
Result<std::unique_ptr<BoundOp>> bind_streamed(const LinearProblem& problem);
// The maximum number of rows for the split kernel, whose blocks split k.
inline constexpr std::int64_t kMostSplitRows = 64;
// Returns whether the split kernel supports the linear and is faster than all other kernels, except perhaps the
// streamed kernel. The split kernel supports 2 to kMostSplitRows rows of a 16-bit type. k and n must be multiples of 8,
// and w must be a weight. The split kernel needs Hopper and a forward that is not deterministic.
bool can_split(const BindArgs& args);
// Binds the kernel that splits k. Like the streamed kernel, it loads weights before the preceding kernels have ended
// (linear_split.cuh). Sums have one order for all row counts. Precondition: can_split().
Result<std::unique_ptr<BoundOp>> bind_split(const LinearProblem& problem);
// Binds a JoinedKernelDef's operators: a linear without residual, then silu_mul or gelu_mul. Returns null if the split
// kernel does not support them.
Result<std::unique_ptr<BoundOp>> bind_split_gated(std::span<const BindArgs> calls);
// Binds a JoinedKernelDef's operators, side by side: adapter_shrink and a linear, which read the same x. Returns null
// if the split kernel does not support them, or if the streamed kernel computes the linear.
Result<std::unique_ptr<BoundOp>> bind_split_shrink(std::span<const BindArgs> calls);

// Binds a JoinedKernelDef's operators: a linear, adapter_add, and, if the linear has no residual, silu_mul or gelu_mul.
// Returns null if the streamed kernel does not support them.
Result<std::unique_ptr<BoundOp>> bind_adapted(std::span<const BindArgs> calls);

// Returns our kernels that compute a linear together with the operators after it.
const std::vector<JoinedKernelDef>& joined_linear_kernels();

// The workspace that NVIDIA recommends for cuBLASLt on Hopper, for its split-k and stream-k kernels.
inline constexpr std::size_t kCublasLtWorkspaceBytes = std::size_t{32} << 20;
// Binds the library's first choice for the problem's sizes, and keeps the choice for the next bind of the same sizes.
// Sums are in float32, without TF32. Preconditions: m, n, k >= 1, and a workspace of kCublasLtWorkspaceBytes. Returns
// kUnimplemented if the library has no kernel for the sizes.
Result<std::unique_ptr<BoundOp>> bind_cublaslt(const LinearProblem& problem, Device& device);
// The number of rows for which bind_cublaslt_for_any_rows() asks the library for an algorithm.
inline constexpr std::int64_t kReferenceRows = 256;
// Binds one algorithm for any number of rows: the library's first choice for kReferenceRows rows of x, among the
// algorithms that compute each sum in one block. This algorithm uses one size of tile and one order of products for
// every element of y, so that a row's bits do not depend on m. It needs no workspace. Returns kUnimplemented if no
// algorithm qualifies for n, k and dtype. Returns kInternal if the algorithm does not support this m, because another
// algorithm would give other bits.
Result<std::unique_ptr<BoundOp>> bind_cublaslt_for_any_rows(const LinearProblem& problem, Device& device);

// Creates the library's handle and asks it for one algorithm, so that later queries take microseconds. The first query
// takes 95 ms on an H200's host. `device` is a CUDA device. The function is thread-safe.
void start_cublaslt(Device& device);
// cublaslt_algorithms() exports the choices of cuBLASLt in this process so far, and remember_cublaslt_algorithms()
// imports those of an earlier process. An imported choice is used if the library still accepts it
// (linear_algorithms.h). Choices depend on cublaslt_versions() and on the GPU.
std::string cublaslt_versions();
Json cublaslt_algorithms();
Status remember_cublaslt_algorithms(const Json& algorithms);

}  // namespace tessera
