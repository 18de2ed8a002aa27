// Batches to measure with: random ids, pages of their own. They are made for a runner that serves
// nothing else, and take its pages from 1 on.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Both kinds want the logits of each request's last token, and fail where the KV cache has too few pages.
// A prefill has `tokens` new ones, of as few requests as the context length allows.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);
// A decode has requests with `context` tokens each, of which the last is new.
Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context);

// The largest prefill and the largest decode that the runner takes.
std::int64_t max_prefill_tokens(const ModelRunner& runner);
std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context);

}  // namespace tessera::cli
