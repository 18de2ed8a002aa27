// Makes batches for measurements, with random ids and pages of their own. The runner must serve nothing else, because
// the batches use its pages from 1 on.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/engine/engine_options.h"
#include "tessera/ops/contract/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Returns an engine's options with slots for `adapters` adapters (BenchOptions).
EngineOptions with_adapter_slots(EngineOptions options, std::int64_t adapters);
// Fills the slots of adapters with pseudo-random numbers of the largest rank, if adapters are served. No slot may be in
// use.
Status fill_adapters(ModelRunner& runner);
// Gives the batch's requests the adapters 0 to `adapters` - 1 in turn; none if it is 0.
void assign_adapters(ForwardBatch& batch, std::int64_t adapters);

// Returns the runner of this role that the decision chose: with or without adapters.
inline const GraphRunner& runner_of(ModelRunner& runner, RunnerRole role, const Decision& decision) {
  return runner.parts().runner(with_adapters(role, decision.adapters));
}

// Returns a prefill of `tokens` new tokens, in as few requests as the context length allows. Like make_decode_batch(),
// it asks for the logits of each request's last token, and fails if the KV cache has too few pages.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);
// Returns a decode of requests with `context` tokens each, of which only the last is new.
Result<ForwardBatch> make_decode_batch(const ModelRunner& runner, std::int64_t requests, std::int64_t context);

// Return the sizes of the largest prefill and of the largest decode that the runner accepts.
std::int64_t max_prefill_tokens(const ModelRunner& runner);
std::int64_t max_decode_requests(const ModelRunner& runner, std::int64_t context);

}  // namespace tessera::cli
