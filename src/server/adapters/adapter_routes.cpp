#include "tessera/server/adapters/adapter_routes.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "tessera/server/adapters/adapter_requests.h"

namespace tessera {
namespace {

using Shared = std::shared_ptr<const AdapterRouteSources>;

void answer_loaded(const Call& call, const ServedModel& model) {
  call.respond_json(fmt::format("{{\"success\": true, \"loaded_adapters\": {}}}", model.adapters->json()));
}

// Returns a function that any thread may call with an engine's answer. The function passes the answer to the I/O
// thread. This thread refuses the call with the answer's error or, after success, calls `finish(shared, call, answer)`.
template <class T, class Finish>
std::function<void(ApiResult<T>)> on_io(const Shared& shared, Call call, Finish finish) {
  return [shared, call = std::move(call), finish](ApiResult<T> answer) mutable {
    shared->on_io([shared, call = std::move(call), finish, answer = std::move(answer)]() mutable {
      if (!answer.ok()) return call.refuse(answer.error());
      finish(shared, std::move(call), *std::move(answer));
    });
  };
}

void load(const Shared& shared, Call call, LoadAdapterRequest request) {
  load_adapter(shared->engines, shared->model.adapters, std::move(request),
               on_io<std::monostate>(shared, std::move(call), [](const Shared& sources, const Call& loaded, auto) {
                 answer_loaded(loaded, sources->model);
               }));
}

// Answers the call once no request of any engine uses the adapter.
void answer_when_ended(const Shared& shared, Call call, UnloadedAdapter adapter) {
  if (!adapter.in_use()) return answer_loaded(call, shared->model);
  shared->after(kUnloadPollSeconds, [shared, call = std::move(call), adapter = std::move(adapter)]() mutable {
    answer_when_ended(shared, std::move(call), std::move(adapter));
  });
}

void unload(const Shared& shared, Call call, UnloadAdapterRequest request) {
  unload_adapter(shared->engines, shared->model.adapters, std::move(request.name),
                 on_io<UnloadedAdapter>(shared, std::move(call), answer_when_ended));
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
                        unload(shared, std::move(asked), *std::move(request));
                      });
                },
                RouteAccess::kAdmin});
  }
}

}  // namespace tessera
