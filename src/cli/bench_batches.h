// Batches to measure with: random ids, pages of their own. They are made for a runner that serves
// nothing else, and take its pages from 1 on.
#pragma once

#include <cstdint>

#include "tessera/base/status.h"
#include "tessera/ops/forward_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera::cli {

// Requests of `query` new tokens each after `prefix` cached ones.
struct BatchPlan {
  std::int64_t requests = 1;
  std::int64_t query = 1;
  std::int64_t prefix = 0;
};

// The logits of each request's last token are wanted. Fails where the KV cache has too few pages.
Result<ForwardBatch> make_batch(const ModelRunner& runner, const BatchPlan& plan);

// `tokens` new ones, of as few requests as the context length allows.
Result<ForwardBatch> make_prefill_batch(const ModelRunner& runner, std::int64_t tokens);

}  // namespace tessera::cli
