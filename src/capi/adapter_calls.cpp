#include "tessera/capi/adapter_calls.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "tessera/capi/event_queue.h"
#include "tessera/server/adapters/adapter_requests.h"
#include "tessera/server/fields/json_writer.h"

namespace tessera::capi {
namespace {

std::string adapters_json(const std::vector<AdapterInfo>& adapters) {
  JsonWriter json;
  json.array();
  for (const AdapterInfo& adapter : adapters) {
    json.object().key("lora_name").value(adapter.name).key("lora_path").value(adapter.path);
    json.key("rank").value(adapter.rank).key("pinned").value(adapter.pinned);
    json.key("running").value(adapter.running).key("on_device").value(adapter.on_device).end_object();
  }
  return json.end_array().take();
}

}  // namespace

// Calls `start(engines, done)`, and waits until the engine's thread calls `done` with the answer.
template <class T, class Start>
Result<ApiResult<T>> AdapterCalls::changed(const Start& start) {
  auto answer = std::make_shared<std::promise<ApiResult<T>>>();
  std::future<ApiResult<T>> future = answer->get_future();
  Status posted;
  // Only `done` owns the promise. If the engine's thread drops the task, the promise breaks and the wait ends.
  start(EachEngine{.run = [&](const auto& task) { posted = engine_->post(task); }, .count = 1},
        [answer = std::move(answer)](ApiResult<T> given) { answer->set_value(std::move(given)); });
  TRY(posted);
  return engine_->await(std::move(future));
}

Result<ApiStatus> AdapterCalls::load(std::string_view body) {
  TRY(engine_->check_process());
  const ServedModel& model = engine_->model();
  ApiResult<LoadAdapterRequest> request = read_load_adapter(model, body);
  if (!request.ok()) return ApiStatus(std::move(request.error()));
  return changed<std::monostate>([&](const EachEngine& engines, auto done) {
    load_adapter(engines, model.adapters, *std::move(request), std::move(done));
  });
}

Result<ApiStatus> AdapterCalls::unload(const std::string& name) {
  ApiResult<UnloadedAdapter> adapter = TRY(changed<UnloadedAdapter>([&](const EachEngine& engines, auto done) {
    unload_adapter(engines, engine_->model().adapters, name, std::move(done));
  }));
  if (!adapter.ok()) return ApiStatus(adapter.error());
  const std::lock_guard lock(mutex_);
  std::erase_if(unloaded_, [](const auto& entry) { return !entry.second.in_use(); });
  unloaded_.emplace(name, *adapter);
  return api_ok();
}

bool AdapterCalls::in_use(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = unloaded_.equal_range(name);
  return std::any_of(begin, end, [](const auto& entry) { return entry.second.in_use(); });
}

Result<bool> AdapterCalls::wait(const std::string& name, std::int64_t timeout_ms) {
  const auto began = std::chrono::steady_clock::now();
  const std::chrono::milliseconds longest(std::min(timeout_ms, kLongestWaitMs));
  while (true) {
    TRY(engine_->health());
    if (!in_use(name)) return true;
    std::chrono::duration<double> pause(kUnloadPollSeconds);
    if (timeout_ms >= 0) {
      const auto left = longest - (std::chrono::steady_clock::now() - began);
      if (left.count() <= 0) return false;
      pause = std::min<std::chrono::duration<double>>(pause, left);
    }
    std::this_thread::sleep_for(pause);
  }
}

Result<std::string> AdapterCalls::list() {
  return engine_->ask_engine([](Engine& engine) { return adapters_json(engine.adapters().list()); });
}

}  // namespace tessera::capi
