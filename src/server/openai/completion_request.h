// Handles POST /v1/completions, which takes prompts and returns their continuations.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Makes the job of a request. Slow (tokenises, compiles a grammar): do not call it on the I/O thread. `model` outlives
// the job.
ApiResult<ApiJob> prepare_completion(const ServedModel& model, std::string_view body);

}  // namespace tessera
