// Batches that no request asked for. Warm-up and cost measurement run them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// Makes a batch on the reserved page that wants the last row of each request. A prefill has `size` tokens in requests
// as long as the context allows. A decode has `size` requests of decode_query_length tokens each, behind a context that
// fills their page. There are at most options.max_requests requests.
//
// Ids run through the vocabulary, so that rows choose various experts as real requests do. Slots run through the
// reserved page without its slot 0, which marks padding: a padding row chooses no expert. With pages of one token there
// is no other slot, so the rows choose no experts. In a state group every row has slot 0, since slot 1 belongs to a
// request.
ForwardBatch dummy_batch(std::int64_t size, bool decode, const RunnerOptions& options,
                         std::span<const ir::CacheGroup> groups, std::int64_t vocab_size);

// Makes a batch that wants all rows: `size` tokens in requests that each fit in a page and have at least two rows. All
// requests have the same tokens at the same positions, so they may share the reserved page: every write to a slot
// stores the same value. Every row's output is defined, and the same from run to run. Returns nothing if `size` tokens
// cannot be divided like this.
std::optional<ForwardBatch> page_batch(std::int64_t size, const RunnerOptions& options,
                                       std::span<const ir::CacheGroup> groups);

// Replaces the batch's wanted rows by all of its rows.
void want_all_rows(ForwardBatch& batch);

}  // namespace tessera
