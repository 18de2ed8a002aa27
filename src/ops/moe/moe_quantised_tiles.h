// Binds moe_experts with quantised experts to the tensor-core kernels that run on every GPU (moe_grouped.cuh,
// moe_few_rows.cuh). The classes of moe_quantised_readers.cuh read the weights for these kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tessera/base/status.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera {

// Returns whether the type has 16 bits and the kernels support the formats of both matrices (has_whole_pieces()).
bool quantised_experts_serve(const ExpertsProblem& p);

// Binds the kernels. Precondition: quantised_experts_serve(p). If `few` is true, binds the algorithm without tiles,
// which supports at most kMostPairs pairs (token, k).
Result<std::unique_ptr<BoundOp>> bind_quantised_experts(const ExpertsProblem& p, std::byte* scratch,
                                                        std::int64_t multiprocessors, bool few);

}  // namespace tessera
