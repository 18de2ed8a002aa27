// Makes batches for measurements, with random ids and pages of their own. The runner must serve nothing else, because
// the batches use its pages from 1 on.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Returns a prefill of `tokens` new tokens, in as few requests as the context length allows. Like make_decode_batch(),
// it asks for the logits of each request's last token, and fails if the KV cache has too few pages.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);
// Returns a decode of requests with `context` tokens each, of which only the last is new.
Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context);

// Return the sizes of the largest prefill and of the largest decode that the runner accepts.
std::int64_t max_prefill_tokens(const ModelRunner& runner);
std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context);

}  // namespace tessera::cli
