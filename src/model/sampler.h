// The sampler's graph, the same for every architecture.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ir/graph.h"
#include "tessera/ir/op_decl.h"

namespace tessera {

// logits f32[R, vocab] and per-row parameters → sampled_ids i32[R].
Result<ir::Graph> build_sampler(std::int64_t vocab_size, const ir::OpTable& ops);

}  // namespace tessera
