// Makes batches for measurements, with random ids and their own pages. The runner must serve nothing else; the batches
// use its pages from 1 on.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Both kinds ask for the logits of each request's last token, and fail if the KV cache has too few pages.
// A prefill has `tokens` new tokens, in as few requests as the context length allows.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);
// A decode has requests with `context` tokens each, of which only the last is new.
Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context);

// Return the largest prefill and the largest decode that the runner accepts.
std::int64_t max_prefill_tokens(const ModelRunner& runner);
std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context);

}  // namespace tessera::cli
