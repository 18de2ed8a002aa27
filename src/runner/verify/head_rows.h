// Finds the memory from which a head reads, for the comparison of heads.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/tensor_view.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// Returns the values whose rows the head `role` reads, at their largest size. The head of a draft reads draft_hidden,
// copied to the place of the body's hidden states; its rows may be longer than theirs.
Result<std::vector<TensorView>> rows_of_head(const RunnerParts& parts, RunnerRole role);

}  // namespace tessera
