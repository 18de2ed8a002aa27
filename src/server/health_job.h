// GET /health_generate: one token through the whole engine.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Its answer has an empty body. `body` is not looked at.
ApiResult<ApiJob> prepare_health(const ServedModel& model, std::string_view body);

}  // namespace tessera
