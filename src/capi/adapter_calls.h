// Loads, unloads and lists the low-rank adapters of an embedded engine, as the server's routes do
// (server/adapters/adapter_changes.h).
//
// Threads: any thread may call any function. load() reads the folder on the calling thread. load(), unload() and list()
// block until the engine's running step ends. A callback may call none of these functions, not even wait(), which waits
// until no request uses an unloaded adapter any more. In a forked process, and once the engine has stopped, all
// functions return kFailedPrecondition.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/status.h"
#include "tessera/capi/embedded_engine.h"
#include "tessera/server/adapters/adapter_changes.h"
#include "tessera/server/api_result.h"

namespace tessera::capi {

class AdapterCalls {
 public:
  explicit AdapterCalls(std::shared_ptr<EmbeddedEngine> engine) : engine_(std::move(engine)) {}

  // Loads the adapter that `body` describes. `body` has the same form as in POST /v1/load_lora_adapter. The ApiStatus
  // has the errors of read_load_adapter() and load_adapter().
  Result<ApiStatus> load(std::string_view body);
  // Returns as soon as no new request can name the adapter. The ApiStatus has the errors of unload_adapter().
  Result<ApiStatus> unload(const std::string& name);
  // Waits until no request uses an adapter that was unloaded under this name, and then returns true. Returns false if a
  // request still uses one after `timeout_ms` milliseconds. If `timeout_ms` is negative, waits without a limit. Returns
  // the engine's error if the engine fails meanwhile.
  Result<bool> wait(const std::string& name, std::int64_t timeout_ms);
  // Returns the loaded adapters, sorted by name: [{"lora_name", "lora_path", "rank", "pinned", "running",
  // "on_device"}].
  Result<std::string> list();

 private:
  template <class T, class Start>
  Result<ApiResult<T>> changed(const Start& start);
  bool in_use(const std::string& name);

  std::shared_ptr<EmbeddedEngine> engine_;
  std::mutex mutex_;
  std::multimap<std::string, UnloadedAdapter> unloaded_;  // by name; some are no longer in use; guarded by mutex_
};

}  // namespace tessera::capi
