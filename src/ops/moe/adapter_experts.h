// Adds the change that low-rank adapters make to experts (moe_experts.h, which defines T, H, K, E, I and a). The change
// passes through the experts' activation, so it cannot be added to their result. Instead, this operator computes each
// row that has such an adapter again, as a whole:
//
//   adapter_experts(mut y X[T, H], x X[T, H], ids i32[T, K], weights f32[T, K], gate_up X[E, 2I, H], down X[E, H, I],
//                   gate_up_a X[S, 2E·R, H], gate_up_b X[S, R, E·2I], gate_up_ranks i32[S, 2E],
//                   gate_up_scales f32[S, 2E], down_a X[S, E·R, I], down_b X[S, R, E·H], down_ranks i32[S, E],
//                   down_scales f32[S, E], slots i32[5, T])
//     {activation = "silu"}
//
//   y[t] = Σ_k weights[t, k] · down'[e] · a(gate_up'[e] · x[t]),   e = ids[t, k]
//
// M'[e], for M = gate_up or down, is M[e] + scale · Bᵀ · A. A, B and scale come from the row's slot. There are S slots,
// and R is the largest rank. The tables have the layout of adapter_linear.h. The modules of gate_up are gate 0, up 0,
// gate 1, …, and the modules of down are down 0, down 1, …. `slots` is the table of adapter_rows.h. A row keeps its y
// if its slot is negative or at least S, or if the adapter changes none of its experts. Products with M', and the
// results of a(), are rounded to X; the sum over k is in float32, in the order of k, and rounded once. A row's result
// depends only on that row and its slot. The kernels are simple: each row reads the matrices of its own experts, even
// if another row has already read the same matrices.
#pragma once

#include <cstdint>

#include "tessera/ir/op_decl.h"
#include "tessera/ops/adapters/adapter_rows.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

extern const ir::OpDecl kAdapterExperts;
extern const KernelDef kAdapterExpertsCpu;
extern const KernelDef kAdapterExpertsCuda;

// The adapter tables for one kind of matrix of all experts: gate_up or down. X is the type of x, and `rank` is the
// largest rank of any slot.
struct AdapterStack {
  const void* a = nullptr;              // X[num_slots, modules · rank, columns]
  const void* b = nullptr;              // X[num_slots, rank, width]
  const std::int32_t* ranks = nullptr;  // [num_slots, modules]
  const float* scales = nullptr;        // [num_slots, modules]
  std::int64_t modules = 0;
  std::int64_t columns = 0;
  std::int64_t width = 0;  // columns of b: the rows of the experts' weight matrices of all modules together
};

// The arguments of the kernels.
struct AdapterExpertsArgs {
  void* y = nullptr;
  const void* x = nullptr;
  const std::int32_t* ids = nullptr;
  const float* weights = nullptr;
  const void* gate_up = nullptr;
  const void* down = nullptr;
  AdapterStack gate_up_change{};
  AdapterStack down_change{};
  const std::int32_t* slots = nullptr;
  std::int64_t rows = 0;
  std::int64_t top_k = 0;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int32_t num_slots = 0;
  std::int32_t rank = 0;  // the largest rank of any slot
  bool gelu = false;      // the tanh form of GELU instead of SiLU
};
AdapterExpertsArgs adapter_experts_args(const BindArgs& args);

// The largest sizes that a kernel supports.
struct AdapterExpertsLimits {
  std::int64_t hidden;
  std::int64_t intermediate;
  std::int32_t rank;
};
// Returns kUnimplemented if some size is above its limit. The message states the sizes and the limits.
Status check_sizes(const AdapterExpertsArgs& in, const AdapterExpertsLimits& most);

}  // namespace tessera
