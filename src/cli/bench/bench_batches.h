// Makes batches of random token ids for measurements. The runner must not serve requests at the same time, because the
// batches use pages of the runner's KV cache, beginning with page 1.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Returns `options` with slots for `adapters` adapters.
EngineOptions with_adapter_slots(EngineOptions options, std::int64_t adapters);
// Gives each request of the batch one of the adapters 0 … `adapters` - 1, in turn. If `adapters` is 0, no request gets
// an adapter.
void assign_adapters(ForwardBatch& batch, std::int64_t adapters);

// Returns the runner that the decision chose for `role`: the runner with adapters, or the runner without adapters.
inline const GraphRunner& runner_of(ModelRunner& runner, RunnerRole role, const Decision& decision) {
  return runner.runner(with_adapters(role, decision.adapters));
}

// Returns a prefill of `tokens` new tokens, in as few requests as the context length allows. This function's batches
// and those of make_decode_batch() ask for the logits of each request's last token. Both functions return an error if
// the KV cache has too few pages.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);
// Returns a decode in which each request has `context` tokens, of which only the last token is new.
Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context);

// max_prefill_tokens() returns the number of tokens in the largest prefill that the runner accepts.
// max_decode_requests() returns the number of requests in the largest decode that it accepts.
std::int64_t max_prefill_tokens(const ModelRunner& runner);
std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context);

}  // namespace tessera::cli
