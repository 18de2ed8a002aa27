// Batches that no request asked for: what warms kernels up and what is measured.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/ops/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// `tokens` tokens on the reserved page, no row wanted: requests as long as the context allows, or, as a decode, of one
// token each after a page of context.
ForwardBatch dummy_batch(std::int64_t tokens, bool decode, const RunnerOptions& options, std::size_t cache_groups);

}  // namespace tessera
