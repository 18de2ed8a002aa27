// SGLang's form of /v1/score: returns the probability of each given token after a query and an item. A causal model
// that was trained to answer "yes" or "no" (Qwen3-Reranker) ranks documents in this way.
#pragma once

#include "tessera/server/api_job.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/served_model.h"

namespace tessera {

ApiResult<ApiJob> prepare_label_scores(const ServedModel& model, const ApiFields& fields);

}  // namespace tessera
