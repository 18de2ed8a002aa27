// These operators compute the change that low-rank adapters (LoRA, Hu et al., arXiv 2106.09685) make to a linear. The
// change is y += scale · (x · Aᵀ) · B. Each row has its own adapter, or none. The matrices of the adapters in use are
// stored in numbered slots, and each row has the number of its adapter's slot (adapter_rows.h). Kernels read slots,
// ranks and scales from device memory, so one recorded graph serves every mix of adapters.
//
//   adapter_shrink(x X[T, K], a X[S, N·R, K], ranks i32[S, N], rows i32[5, T]) → f32[T, N·R]
//   adapter_add(mut y X[T, M], t f32[T, N·R], b X[S, R, M], ranks i32[S, N], scales f32[S, N], rows i32[5, T])
//     {rows: [m₀, m₁, …], modules: [n₀, n₁, …]}
//
// T is the number of rows, K and M are the sizes of the linear's input and output, S is the number of slots, and R is
// the largest rank. A linear may join N modules, such as q, k and v. The attributes divide its columns into ranges:
// range i has rows[i] columns and belongs to module modules[i]. Module n of a slot has ranks[slot, n] rows of A from
// row n · R on, and the same number of rows of B. Rows of A past the rank may hold anything, and rows of B past it any
// finite values. Neither affects a result. A rank of 0 means that the adapter does not change the module. In rows
// of t that have an adapter, values past the rank are 0. The other rows of t are undefined. A row without an adapter,
// or with an adapter of rank 0, keeps the bits of its y. Slot numbers are below S. The matrices, ranks, scales and rows
// are written by copies, never by kernels. So a kernel may read them before the preceding kernels have ended.
//
// A row's result depends only on that row, its slot and the number of rows. In a deterministic forward it does not
// depend on the number of rows either. The change's sums are float32, and are rounded once, when y is written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/adapters/adapter_rows.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAdapterShrink;
extern const ir::OpDecl kAdapterAdd;
extern const KernelDef kAdapterShrinkCpu;
extern const KernelDef kAdapterAddCpu;
extern const KernelDef kAdapterShrinkCuda;
extern const KernelDef kAdapterAddCuda;

// The maximum number of column ranges of one linear.
inline constexpr std::size_t kMaxAdapterRanges = 16;

// The column ranges of a linear: range i ends before column ends[i] and belongs to module modules[i].
struct AdapterRanges {
  std::int32_t ends[kMaxAdapterRanges] = {};
  std::int32_t modules[kMaxAdapterRanges] = {};
  std::int32_t count = 0;
};
// Reads the attributes "rows" and "modules". Precondition: the shape rule accepted the node.
AdapterRanges adapter_ranges(const ir::Node& node);

// The arguments of a kernel that computes x · Aᵀ. X is the type of the elements.
struct AdapterProductArgs {
  const void* x = nullptr;              // X[rows, cols]
  const void* a = nullptr;              // X[num_slots, modules · rank, cols]
  const std::int32_t* ranks = nullptr;  // [num_slots, modules]
  AdapterRows table{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t num_slots = 0;
  std::int32_t modules = 0;
  std::int32_t rank = 0;  // the largest rank of any slot

  // Makes the arguments from x [T, K], a [S, N·R, K], ranks i32[S, N] and the table of rows i32[5, T].
  static AdapterProductArgs of(const TensorView& x, const TensorView& a, const TensorView& ranks,
                               const TensorView& rows);
};

// The arguments of a kernel that computes adapter_shrink.
struct AdapterShrinkArgs : AdapterProductArgs {
  float* t = nullptr;  // [rows, modules · rank]
};
AdapterShrinkArgs adapter_shrink_args(const BindArgs& args);

// The arguments of a kernel that computes adapter_add. X is the type of the elements.
struct AdapterAddArgs {
  void* y = nullptr;                    // X[rows, cols]
  const float* t = nullptr;             // [rows, modules · rank]
  const void* b = nullptr;              // X[num_slots, rank, cols]
  const std::int32_t* ranks = nullptr;  // [num_slots, modules]
  const float* scales = nullptr;        // [num_slots, modules]
  AdapterRows table{};
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int32_t num_slots = 0;
  std::int32_t modules = 0;
  std::int32_t rank = 0;  // the largest rank of any slot
  AdapterRanges ranges{};
};
AdapterAddArgs adapter_add_args(const BindArgs& args);

}  // namespace tessera
