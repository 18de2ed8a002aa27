// Loads and unloads low-rank adapters on all engines of a model while requests run. The server's routes and the C
// interface use these functions.
//
// All engines have the same adapters, because each engine carries out the same changes in the same order. All engines
// therefore give the same answer to a change, and the client gets it once.
//
// Threads: any thread may call every function.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/engine.h"
#include "tessera/server/adapters/adapter_requests.h"
#include "tessera/server/adapters/served_adapters.h"
#include "tessera/server/api_result.h"

namespace tessera {

// All engines of a model, each on its own thread.
struct EachEngine {
  // Runs a task on the thread of each engine, between two steps of the engine. Each engine runs tasks in the order of
  // the calls.
  std::function<void(const std::function<void(Engine&)>& task)> run;
  int count;  // the number of engines; at least 1
};

// An adapter that was unloaded from all engines. Running requests may still use it.
class UnloadedAdapter {
 public:
  explicit UnloadedAdapter(std::vector<std::weak_ptr<const ServedAdapter>> loads) : loads_(std::move(loads)) {}
  // Returns whether a request of any engine still uses the adapter. Once the result is false, it stays false.
  bool in_use() const;

 private:
  std::vector<std::weak_ptr<const ServedAdapter>> loads_;  // one for each engine
};

// The polling interval in seconds. Code that waits for the last request of an unloaded adapter calls
// UnloadedAdapter::in_use() this often.
inline constexpr double kUnloadPollSeconds = 0.01;

// Makes an adapter available on each engine, and then to requests (ServedAdapters::add). `done` is called once, on the
// thread of the engine that finishes last. If several changes are pending, their `done` functions are called in the
// order in which the changes were requested. If an engine ends before it makes the change, `done` is destroyed without
// a call. Errors: the errors of AdapterPool::load(), as a 400.
void load_adapter(const EachEngine& engines, std::shared_ptr<ServedAdapters> adapters, LoadAdapterRequest request,
                  std::function<void(ApiStatus answer)> done);

// Removes an adapter, so that no new request can name it. Running requests that use the adapter keep it until they end.
// Calls `done` as load_adapter() does. Errors: 404 for a name that is not loaded, and 400 if no adapters are served
// (`adapters` is null).
void unload_adapter(const EachEngine& engines, std::shared_ptr<ServedAdapters> adapters, std::string name,
                    std::function<void(ApiResult<UnloadedAdapter> answer)> done);

}  // namespace tessera
