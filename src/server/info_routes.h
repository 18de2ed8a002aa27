// The routes that say what is served, whether it is ready, and how busy it is. None of them reads a body.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/server/http/call.h"
#include "tessera/server/http/router.h"
#include "tessera/server/served_model.h"

namespace tessera {

// What the routes need of their server. All functions are called on the I/O thread and must outlive the router.
struct InfoSources {
  const ServedModel& model;
  const Engine& engine;                              // what all engines have in common
  std::function<std::vector<EngineStats>()> stats;   // of each engine
  std::function<std::optional<ApiError>()> refusal;  // why the server takes no requests; nothing if it takes them
  // Answers the call with what `ask` returns on the first engine's thread.
  std::function<void(Call call, std::function<HttpResponse(Engine&)> ask)> ask_engine;
};

void add_info_routes(Router& router, InfoSources sources);

}  // namespace tessera
