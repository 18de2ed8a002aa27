// Handles /v1/embeddings, which returns one vector for each input.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Reads the request's body and makes the job. Errors: 400 that names the field; 404 if the request names another model.
ApiResult<ApiJob> prepare_embeddings(const ServedModel& model, std::string_view body);

}  // namespace tessera
