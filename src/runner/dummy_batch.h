// Makes batches that belong to no request, for warm-up and cost measurement.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// Makes a batch on the reserved page (page 0, which no request owns) that wants the last row of each request. A prefill
// has `size` tokens, in requests as long as the context length allows. A decode has `size` requests with one new token
// each. The new token is the last token of a page. There are at most options.max_requests requests.
//
// Ids run through the vocabulary, so rows choose various experts as real requests do. Slots run through the reserved
// page but leave out slot 0. Slot 0 marks a padding row, which chooses no expert. If a page holds only one token, the
// reserved page has only slot 0, so no row chooses an expert. In a state group every row has slot 0, since slot 1
// belongs to a request.
ForwardBatch dummy_batch(std::int64_t size, bool decode, const RunnerOptions& options,
                         std::span<const ir::CacheGroup> groups, std::int64_t vocab_size);

// Makes a batch of `size` tokens that wants all rows. Each request fits in a page and has at least two rows. All
// requests have the same token at each position, so all writes to a slot store the same value, and the requests can
// share the reserved page. Every row's output is defined and equal from run to run. Returns std::nullopt if `size`
// tokens cannot be divided like this.
std::optional<ForwardBatch> page_batch(std::int64_t size, const RunnerOptions& options,
                                       std::span<const ir::CacheGroup> groups);

// Marks all rows of the batch as wanted.
void want_all_rows(ForwardBatch& batch);

}  // namespace tessera
