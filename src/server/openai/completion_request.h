// POST /v1/completions: prompts in, their continuations out.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// Slow (tokenises, compiles a grammar): not for the I/O thread. `model` outlives the job.
ApiResult<ApiJob> prepare_completion(const ServedModel& model, std::string_view body);

}  // namespace tessera
