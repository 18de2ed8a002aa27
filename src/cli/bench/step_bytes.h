// Computes how many bytes a decode step must read and write. A step takes at least the time in which the memory can
// move these bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/ir/graph.h"

namespace tessera::cli {

// The size of a decode step: each of `requests` requests adds a token, which attends to `context` tokens, including
// itself.
struct StepShape {
  std::int64_t requests = 0;
  std::int64_t context = 0;
};

// Returns the cache bytes that a step reads and writes, summed over the operators of `body`. An operator's keys and
// values (or latents) count only for the tokens to which it attends. A request's state counts once for an operator that
// reads it, and twice for an operator that also writes it. If several layers share a cache, the cache counts once for
// each of these layers, because each of them reads it. The few rows that a step adds are ignored. `page_size` is the
// number of tokens in a page.
Result<std::int64_t> cache_bytes(const ir::Graph& body, std::int64_t page_size, const StepShape& step);

// Returns the bytes of the lookup tables, from which a step reads only a few rows. A weight is a lookup table if `body`
// only looks up rows of it and `head` does not multiply by it. Examples are an untied embedding and per-layer embedding
// tables.
Result<std::int64_t> looked_up_bytes(const ir::Graph& body, const ir::Graph& head);

// Returns the bytes of all experts' weights in `body`, scales included. If `body` is one rank's part, only that rank's
// experts count.
Result<std::int64_t> expert_bytes(const ir::Graph& body);

// The part of the model on rank 0 of one pipeline stage.
struct StagePart {
  ir::Graph body;
  std::int64_t weights = 0;    // bytes of the weights
  std::int64_t looked_up = 0;  // looked_up_bytes(), included in `weights`
};
// Returns the parts of all stages. Call this before an engine is created, because the planning needs the device's
// memory to be free. Returns the errors of plan_engine().
Result<std::vector<StagePart>> stage_parts(const EngineOptions& options);

// Returns all bytes that a step reads and writes on one rank of each stage: the cache's bytes, and each weight once.
// Lookup tables do not count, because a step reads only a few of their rows. The weights of the experts are multiplied
// by the fraction of experts that the step's tokens are expected to use.
Result<std::int64_t> step_bytes(const Engine& engine, std::span<const StagePart> stages, const StepShape& step);

}  // namespace tessera::cli
