// Which reader of request bodies stands behind a path.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera::capi {

// Reads and tokenises the body of a request of `path`; 404 for a path that answers no requests, naming those that do.
// `model` outlives the job.
ApiResult<ApiJob> prepare(const ServedModel& model, std::string_view path, std::string_view body);

}  // namespace tessera::capi
