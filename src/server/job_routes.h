// POST routes whose bodies are read on a pool's thread. Each route has a function that reads the body. For a route of
// job_routes(), this function makes a job for the engine. For a route of build_routes(), it makes the whole answer.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"
#include "tessera/server/served_model.h"

namespace tessera {

// A POST route. `read` may be slow, because it runs on a pool's thread.
template <class Made>
struct ReadRoute {
  const char* path;
  ApiResult<Made> (*read)(const ServedModel& model, std::string_view body);
};

std::span<const ReadRoute<ApiJob>> job_routes();
std::span<const ReadRoute<std::string>> build_routes();

}  // namespace tessera
