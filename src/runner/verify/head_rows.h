// Finds the memory from which a head reads. verify() uses it to compare heads.
#pragma once

#include <vector>

#include "tessera/base/status.h"
#include "tessera/ir/tensor_view.h"
#include "tessera/runner/runner_parts.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

// Returns views of the values from which the head with this role reads rows. Each view has the shape that its value has
// at the largest size. The head of a draft reads only a copy of draft_hidden. This copy lies where other heads read the
// body's hidden states, and its rows may be longer than the rows of these hidden states.
Result<std::vector<TensorView>> rows_of_head(const RunnerParts& parts, RunnerRole role);

}  // namespace tessera
