// Chooses, by the path of a request, the function that reads the request's body.
#pragma once

#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera::capi {

// Reads and tokenises the body of a request to `path`. `model` must outlive the job. If `path` takes no requests, the
// error has HTTP status 404 and lists the paths that take requests.
ApiResult<ApiJob> prepare(const ServedModel& model, std::string_view path, std::string_view body);

}  // namespace tessera::capi
