// Batches that no request asked for: what warms kernels up and what is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tessera/ir/graph.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/runner_options.h"

namespace tessera {

// On the reserved page, the last row of each request wanted: `size` tokens in requests as long as the context allows,
// or, as a decode, `size` requests of decode_query_length tokens each after a context that fills their page. No more
// than options.max_requests.
//
// Ids run through the vocabulary, and slots through the reserved page without its slot 0, which marks padding: rows
// choose experts, and various ones, as those of requests do. With pages of one token there is no other slot, and rows
// choose none. In a state group they have slot 0: slot 1 is a request's.
ForwardBatch dummy_batch(std::int64_t size, bool decode, const RunnerOptions& options,
                         std::span<const ir::CacheGroup> groups, std::int64_t vocab_size);

// All rows wanted: `size` tokens of requests that fit in a page, each of several rows and all with the same tokens at
// the same positions, so that they may share the reserved page: whoever writes a slot last, it holds the same. Every
// row's output is defined, and the same from run to run. None where so many tokens cannot be shared out like that.
std::optional<ForwardBatch> page_batch(std::int64_t size, const RunnerOptions& options,
                                       std::span<const ir::CacheGroup> groups);

// In the place of those that were.
void want_all_rows(ForwardBatch& batch);

}  // namespace tessera
