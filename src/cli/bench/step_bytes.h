// Bytes of memory that a decode step cannot do without: what its time is compared with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/ir/graph.h"

namespace tessera::cli {

// A decode step: so many requests add a token each, which sees `context` tokens, itself included.
struct StepShape {
  std::int64_t requests = 0;
  std::int64_t context = 0;
};

// Bytes of the cache that a step reads and writes, summed over the operators of `body`. Keys and values, or latents,
// are read as far as an operator sees them, and a request's state is read and written. Each of several layers that
// share a cache reads it. The few rows that a step adds are left out. `page_size`: tokens of a page.
Result<std::int64_t> cache_bytes(const ir::Graph& body, std::int64_t page_size, const StepShape& step);

// Bytes of the weights that `body` only looks rows up in and `head` does not multiply by: an embedding that is not
// tied, or tables of embeddings for each layer. A step reads a few rows of them.
Result<std::int64_t> looked_up_bytes(const ir::Graph& body, const ir::Graph& head);

// What one rank of a stage has of the model; of one stage rank 0 has its part of all layers.
struct StagePart {
  ir::Graph body;
  std::int64_t weights = 0;    // bytes
  std::int64_t looked_up = 0;  // looked_up_bytes(), in them
};
// The parts of every stage, planned before an engine takes the device's memory. Errors: plan_engine()'s.
Result<std::vector<StagePart>> stage_parts(const EngineOptions& options);

// All bytes that a step reads and writes, on one rank of each stage in turn: the cache's, and each weight once. Tables
// count with a few rows, and experts where they are chosen.
Result<std::int64_t> step_bytes(const Engine& engine, std::span<const StagePart> stages, const StepShape& step);

}  // namespace tessera::cli
