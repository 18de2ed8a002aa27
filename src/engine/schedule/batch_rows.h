// Rows of a forward batch: where a sequence's tokens lie in its caches, and which positions they have.
#pragma once

#include <cstdint>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/sequence.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/memory/input_table.h"

namespace tessera {

// Empties a batch for a model with `num_cache_groups` cache groups. Keeps the batch's memory for reuse.
void clear_rows(std::size_t num_cache_groups, ForwardBatch& batch, RopeAxes& rope_positions);
// Adds a request to the batch. Its rows are `count` positions of `sequence`, beginning at position `first`. The rows
// get positions, lengths, slots and page tables, and rotary positions if the sequence has its own. The caller adds the
// ids and the wanted rows (those whose logits are needed). Precondition: the sequence holds the pages.
void append_rows(const Sequence& sequence, std::int64_t first, std::int64_t count, const CacheManager& cache,
                 ForwardBatch& batch, RopeAxes& rope_positions);
// Call it once all requests are added. If some sequences have rotary positions of their own, gives plain positions
// (those in the text) to the rows after the last such sequence.
void finish_rows(const ForwardBatch& batch, RopeAxes& rope_positions);

}  // namespace tessera
