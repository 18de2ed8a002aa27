// The routes that load and unload low-rank adapters while the server runs. A thread of a pool reads the adapter from
// disk. Each engine's thread then makes the adapter available between two steps of the engine. Once all engines have
// the adapter, requests can name it.
//
// Threads: used on the I/O thread only.
#pragma once

#include <functional>

#include "tessera/server/adapters/adapter_changes.h"
#include "tessera/server/http/router.h"
#include "tessera/server/served_model.h"
#include "tessera/server/work/request_reader.h"

namespace tessera {

struct AdapterRouteSources {
  const ServedModel& model;
  // Returns the request reader. This member is a function, because the reader does not exist yet when the routes are
  // added.
  std::function<RequestReader&()> reader;
  EachEngine engines;
  // Runs a task on the I/O thread. Any thread may call this function.
  std::function<void(std::function<void()> task)> on_io;
  std::function<void(double seconds, std::function<void()> task)> after;  // runs a task on the I/O thread after a delay
};

// Adds POST /v1/load_lora_adapter and /v1/unload_lora_adapter, and the same routes without /v1. An answer has
// "success", and "loaded_adapters" with the names and paths of all adapters. The answer to an unload is sent after the
// adapter's last request has ended.
void add_adapter_routes(Router& router, AdapterRouteSources sources);

}  // namespace tessera
