#include "tessera/server/adapters/adapter_routes.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/server/adapters/adapter_requests.h"

namespace tessera {
namespace {

constexpr double kPollSeconds = 0.01;  // time between two checks whether an adapter's last request has ended

using Shared = std::shared_ptr<const AdapterRouteSources>;

void answer_loaded(const Call& call, const ServedModel& model) {
  call.respond_json(fmt::format("{{\"success\": true, \"loaded_adapters\": {}}}", model.adapters->json()));
}

ApiError error_of(const Status& status) {
  ApiError error = invalid_field("lora_name", status.message());
  if (status.code() == StatusCode::kNotFound) error.http_status = 404;
  return error;
}

void load(const Shared& shared, Call call, LoadAdapterRequest request) {
  shared->on_engine([shared, call = std::move(call), request = std::move(request)](Engine& engine) mutable {
    const std::string path = request.content->path();
    const Status loaded = engine.adapters().load(request.load, std::move(request.content));
    shared->on_io([shared, call = std::move(call), name = request.load.name, path, loaded] {
      if (!loaded.ok()) return call.refuse(error_of(loaded));
      shared->model.adapters->add(name, path);
      answer_loaded(call, shared->model);
    });
  });
}

// Answers the call once no request uses the adapter.
void answer_when_ended(const Shared& shared, Call call, std::weak_ptr<const ServedAdapter> adapter) {
  if (adapter.expired()) return answer_loaded(call, shared->model);
  shared->after(kPollSeconds, [shared, call = std::move(call), adapter = std::move(adapter)]() mutable {
    answer_when_ended(shared, std::move(call), std::move(adapter));
  });
}

void unload(const Shared& shared, Call call, const UnloadAdapterRequest& request) {
  shared->on_engine([shared, call = std::move(call), name = request.name](Engine& engine) mutable {
    auto unloaded = std::make_shared<Result<std::weak_ptr<const ServedAdapter>>>(engine.adapters().unload(name));
    shared->on_io([shared, call = std::move(call), name, unloaded]() mutable {
      if (!unloaded->ok()) return call.refuse(error_of(unloaded->status()));
      shared->model.adapters->remove(name);
      answer_when_ended(shared, std::move(call), **unloaded);
    });
  });
}

}  // namespace

void add_adapter_routes(Router& router, AdapterRouteSources sources) {
  const Shared shared = std::make_shared<const AdapterRouteSources>(std::move(sources));
  for (const char* path : {"/v1/load_lora_adapter", "/load_lora_adapter"}) {
    router.add({"POST", path,
                [shared](Call call) {
                  shared->reader().read<LoadAdapterRequest>(
                      std::move(call), read_load_adapter, [shared](Call asked, ApiResult<LoadAdapterRequest> request) {
                        if (!request.ok()) return asked.refuse(request.error());
                        load(shared, std::move(asked), *std::move(request));
                      });
                },
                RouteAccess::kAdmin});
  }
  for (const char* path : {"/v1/unload_lora_adapter", "/unload_lora_adapter"}) {
    router.add({"POST", path,
                [shared](Call call) {
                  shared->reader().read<UnloadAdapterRequest>(
                      std::move(call), read_unload_adapter,
                      [shared](Call asked, ApiResult<UnloadAdapterRequest> request) {
                        if (!request.ok()) return asked.refuse(request.error());
                        unload(shared, std::move(asked), *request);
                      });
                },
                RouteAccess::kAdmin});
  }
}

}  // namespace tessera
