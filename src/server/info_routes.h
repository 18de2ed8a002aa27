// The routes that report what is served, whether it is ready, and how busy it is. None of these routes reads a body.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/server/http/call.h"
#include "tessera/server/http/router.h"
#include "tessera/server/served_model.h"

namespace tessera {

// The parts of the server that the routes use. All members must outlive the router. The functions are called on the I/O
// thread.
struct InfoSources {
  const ServedModel& model;
  const Engine& engine;                              // the first engine, for facts that all engines share
  std::function<std::vector<EngineStats>()> stats;   // returns the statistics of each engine
  std::function<std::optional<ApiError>()> refusal;  // returns why requests are refused; nothing if they are taken
  // Answers the call with the result of `ask`, which runs on the first engine's thread.
  std::function<void(Call call, std::function<HttpResponse(Engine&)> ask)> ask_engine;
};

void add_info_routes(Router& router, InfoSources sources);

}  // namespace tessera
