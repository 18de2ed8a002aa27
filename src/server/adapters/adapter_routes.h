// The routes that load and unload low-rank adapters while the server serves. A pool's thread reads an adapter from
// disk; the engine's thread then makes it available between two steps.
//
// Threads: the I/O thread.
#pragma once

#include <functional>

#include "tessera/engine/engine.h"
#include "tessera/server/http/router.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {

struct AdapterRouteSources {
  const ServedModel& model;
  // Returns the reader, which is made after the routes are added.
  std::function<RequestReader&()> reader;
  std::function<void(std::function<void(Engine&)> task)> on_engine;       // between two steps
  std::function<void(std::function<void()> task)> on_io;                  // from any thread
  std::function<void(double seconds, std::function<void()> task)> after;  // on the I/O thread
};

// Adds POST /v1/load_lora_adapter and /v1/unload_lora_adapter, and the same without /v1. An answer has "success" and
// all "loaded_adapters". An unload answers when the last request of the adapter has ended.
void add_adapter_routes(Router& router, AdapterRouteSources sources);

}  // namespace tessera
