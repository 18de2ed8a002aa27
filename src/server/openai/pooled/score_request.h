// Handles /v1/score in two forms with different fields: vLLM's scores of pairs of texts (text_1, text_2), and SGLang's
// probabilities of given tokens after a prompt (query, items, label_token_ids).
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Reads the request's body and makes the job. Errors: 400 that names the field, 404 if the request names another model.
ApiResult<ApiJob> prepare_score(const ServedModel& model, std::string_view body);

}  // namespace tessera
