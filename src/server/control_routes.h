// The routes by which clients and administrators change what the engines do: they end requests and sessions, and empty
// caches.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "tessera/engine/engine.h"
#include "tessera/engine/ranks/replicas.h"
#include "tessera/server/http/call.h"
#include "tessera/server/http/router.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/live_jobs.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {

// The parts of the server that the routes use. All members must outlive the router. The functions are called on the I/O
// thread.
struct ControlParts {
  const ServedModel& model;
  RequestReader& reader;
  LiveJobs& jobs;
  Replicas& replicas;
  std::span<const std::string> keys;  // all keys of the server
  // Answers the call with the result of `ask`, which runs on the first engine's thread.
  std::function<void(Call call, std::function<HttpResponse(Engine&)> ask)> ask_engine;
};

void add_control_routes(Router& router, ControlParts parts);

}  // namespace tessera
