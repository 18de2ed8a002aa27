// CUDA's ways to compute a linear; linear.cu chooses among them at bind time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/ops/contract/op.h"
#include "tessera/ops/linear/linear_problem.h"

namespace tessera {

class Json;  // nvcc's front end cannot compile base/json.h

// Whether copies of 16 bytes may begin there.
inline bool is_aligned(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// What all kernels of ours for 16-bit types ask for: sums in an order of their own allowed, x and w copied by 16 bytes.
inline bool allows_own_kernels(const BindArgs& args, const LinearProblem& p) {
  const bool half = p.dtype == ir::DType::kBFloat16 || p.dtype == ir::DType::kFloat16;
  return half && !args.context.limits.deterministic && p.k > 0 && p.n > 0 && is_aligned(p.x) && is_aligned(p.w);
}

// Streams the weights once for every four rows (for each row where k is no whole number of 16-byte packs), at the
// speed of memory: what a decode of few requests is bound by. Takes any sizes; a row's bits do not depend on the number
// of rows.
Result<std::unique_ptr<BoundOp>> bind_cuda_few_rows(const LinearProblem& problem);

// Whether the streamed kernel serves the linear and is the fastest: up to 8 rows of a 16-bit type, 16 of a small
// matrix, with whole tiles of w, which is a weight, on Hopper; not in deterministic forwards.
bool can_stream(const BindArgs& args);
// Asks for weights before the kernels ahead have ended (linear_streamed.cuh). Sums have one order for all row counts.
// Precondition: can_stream().
Result<std::unique_ptr<BoundOp>> bind_streamed(const LinearProblem& problem);
// Whether the kernel whose blocks split k serves the linear and is the fastest where the streamed one does not: up to
// 64 rows of a 16-bit type, k and n in whole 16 bytes, w a weight, on Hopper; not in deterministic forwards.
inline constexpr std::int64_t kMostSplitRows = 64;
bool can_split(const BindArgs& args);
// Asks for weights before the kernels ahead have ended (linear_split.cuh). Sums have one order for all row counts.
// Precondition: can_split().
Result<std::unique_ptr<BoundOp>> bind_split(const LinearProblem& problem);
// For JoinedKernelDef: a linear without residual, then silu_mul or gelu_mul. Null where it does not serve.
Result<std::unique_ptr<BoundOp>> bind_split_gated(std::span<const BindArgs> calls);

// These kernels with the gate after the linear.
const std::vector<JoinedKernelDef>& joined_linear_kernels();

// The workspace that NVIDIA recommends for cuBLASLt on Hopper, for its split-k and stream-k kernels.
inline constexpr std::size_t kCublasLtWorkspaceBytes = std::size_t{32} << 20;
// The library's first choice for these sizes, kept for the next bind of the same. Sums in float32, without TF32.
// Precondition: m, n, k >= 1; the workspace has kCublasLtWorkspaceBytes. kUnimplemented where the library has no kernel
// for the sizes.
Result<std::unique_ptr<BoundOp>> bind_cublaslt(const LinearProblem& problem, Device& device);
// One algorithm for any number of rows: the library's first choice for kReferenceRows rows of x, among the algorithms
// that compute each sum in one block. It computes every element of y in the same tile and order, so that a row's bits
// do not depend on m. Needs no workspace. kUnimplemented where there is no such algorithm for n, k and dtype. kInternal
// where the algorithm does not serve this m, because another one would give other bits.
inline constexpr std::int64_t kReferenceRows = 256;
Result<std::unique_ptr<BoundOp>> bind_cublaslt_for_any_rows(const LinearProblem& problem, Device& device);

// Makes the library's handle and asks it for an algorithm, so that the next question is answered in microseconds: the
// first one takes the library 95 ms on an H200's host. `device` is a CUDA device. Thread-safe.
void start_cublaslt(Device& device);
// What cuBLASLt chose so far in this process, and the choices of an earlier one, which are used where the library still
// accepts them (linear_algorithms.h). Choices depend on these versions and on the GPU.
std::string cublaslt_versions();
Json cublaslt_algorithms();
Status remember_cublaslt_algorithms(const Json& algorithms);

}  // namespace tessera
