// Handles /v1/classify, which returns a classifier's score for each label of each text, in vLLM's form.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Reads the request's body and makes the job. Errors: 400 that names the field; 400 if the model is no classifier; 404
// if the request names another model.
ApiResult<ApiJob> prepare_classify(const ServedModel& model, std::string_view body);

}  // namespace tessera
