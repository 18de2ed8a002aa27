// The second set of a model's graphs, for forwards in which some row has a low-rank adapter. Around each linear that
// the layout has stand the two operators that add what adapters change (ops/adapters/adapter_linear.h):
//
//   %t = adapter_shrink(%x, %a, %ranks, %rows)
//   %y = linear(%x, "….weight")
//   adapter_add(mut %y, %t, %b, %ranks, %scales, %rows) {…}
//
// Behind moe_experts, if the layout has its stacks, stands adapter_experts (ops/moe/adapter_experts.h).
// Behind an embedding of the layout stand adapter_lookup (ops/adapters/adapter_lookup.h) and adapter_add.
//
// The small product comes first, because a linear that is launched early loads its weights meanwhile.
// Everything else is as in the first set, which forwards without adapters run, so that those cost nothing. A row
// without an adapter has the same bits in both sets as long as no joined kernel takes a linear together with what
// follows it, which deterministic forwards never do.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"
#include "tessera/model/adapters/adapter_layout.h"
#include "tessera/model/model.h"

namespace tessera {

// Returns the graphs with adapters. The model's own graphs are final: after the passes, and after
// end_with_wanted_rows(). kUnimplemented if a linear of the layout is in none of them.
Result<AdaptedGraphs> adapt_graphs(const ModelGraphs& graphs, AdapterLayout layout, const ir::OpTable& ops);

// The inputs of one linear's operators. They lie in device memory (adapter_tables.h).
enum class AdapterTable : std::uint8_t {
  kA,       // X[slots, modules · max rank, cols]
  kB,       // X[slots, max rank, rows]
  kRanks,   // i32[slots, modules]
  kScales,  // f32[slots, modules]
};
std::string adapter_input(const AdaptableLinear& linear, AdapterTable table);
ir::Type adapter_type(const AdapterLayout& layout, const AdaptableLinear& linear, AdapterTable table);

}  // namespace tessera
