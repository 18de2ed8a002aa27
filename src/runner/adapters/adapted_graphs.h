// Builds the second set of a model's graphs. This set runs the forwards in which at least one row has a low-rank
// adapter (LoRA). AdapterLayout lists the linears that adapters may change. Around each of them, two operators add the
// adapter's contribution (ops/adapters/adapter_linear.h):
//
//   %t = adapter_shrink(%x, %a, %ranks, %rows)
//   %y = linear(%x, "….weight")
//   adapter_add(mut %y, %t, %b, %ranks, %scales, %rows) {…}
//
// If the layout contains the weights of experts, adapter_experts follows moe_experts (ops/moe/adapter_experts.h). If it
// has an embedding, adapter_lookup (ops/adapters/adapter_lookup.h) and adapter_add follow the embedding. If adapters
// may replace the whole matrix of a linear or an embedding, adapter_whole_linear or adapter_whole_embedding comes last
// (ops/adapters/adapter_whole.h).
//
// adapter_shrink comes before the linear, because a linear that is launched early can load its weights while
// adapter_shrink runs. Everything else is the same as in the first set of graphs. Forwards without adapters run the
// first set, so adapters cost them nothing. A row without an adapter gets the same bits from both sets, except if a
// fused kernel joins a linear with the operators that follow it. Deterministic forwards never use these fused kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/model.h"

namespace tessera {

// Returns the graphs with adapters. Returns kUnimplemented if a linear of the layout does not occur in any of the
// graphs. Precondition: the passes and end_with_wanted_rows() have already changed the model's graphs.
Result<AdaptedGraphs> adapt_graphs(const ModelGraphs& graphs, AdapterLayout layout, const ir::OpTable& ops);

// The inputs that the adapter operators of one linear read from device memory (adapter_tables.h). X is
// AdapterLayout::dtype(). rows and cols are the dimensions of the linear's weight, and modules is the number of modules
// that this weight joins.
enum class AdapterTable : std::uint8_t {
  kA,       // X[slots, modules · max rank, cols]
  kB,       // X[slots, max rank, rows]
  kRanks,   // i32[slots, modules]
  kScales,  // f32[slots, modules]
};
inline constexpr std::size_t kNumAdapterTables = 4;
constexpr std::size_t index_of(AdapterTable table) { return static_cast<std::size_t>(table); }
// Returns the tables of a linear. If adapters replace the whole matrix of the linear, it has only kA and kRanks. In
// that case kA is X[slots, rows, cols], or X[slots, cols, rows] for an embedding, and kRanks holds the number of rows
// for each slot, or 0 if the slot's adapter has no matrix for this linear (ops/adapters/adapter_whole.h).
std::span<const AdapterTable> adapter_tables(const AdaptableLinear& linear);
std::string adapter_input(const AdaptableLinear& linear, AdapterTable table);
ir::Type adapter_type(const AdapterLayout& layout, const AdaptableLinear& linear, AdapterTable table);

}  // namespace tessera
