#include "tessera/server/info_routes.h"

#include <memory>
#include <string>
#include <utility>

#include "tessera/server/events/loads.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/ollama/ollama_models.h"
#include "tessera/server/openai/text_routes.h"
#include "tessera/server/report/server_info.h"

namespace tessera {
namespace {

LoadFacts load_facts(const Engine& engine) {
  const EngineOptions& options = engine.options();
  return {.accelerator = engine.runner().device().properties().name,
          .num_accelerators = options.tp_size * options.pp_size,
          .max_running_requests = engine.max_running()};
}

void answer(const Call& call, ApiResult<HttpResponse> response) {
  response.ok() ? call.respond(*std::move(response)) : call.refuse(response.error());
}

void answer_model(const Call& call, const ServedModel& model) {
  const std::string& path = call.request().path;
  ApiResult<std::string> body =
      model_body(model, std::string_view(path).substr(std::string_view("/v1/models/").size()));
  body.ok() ? call.respond_json(*std::move(body)) : call.refuse(body.error());
}

}  // namespace

void add_info_routes(Router& router, InfoSources sources) {
  const auto shared = std::make_shared<const InfoSources>(std::move(sources));
  const auto loads = std::make_shared<LoadReport>(load_facts(shared->engine));
  const ServedModel& model = shared->model;
  const auto get = [&](const char* path, std::function<void(Call call)> handler,
                       RouteAccess access = RouteAccess::kClient) {
    router.add({"GET", path, std::move(handler), access});
  };
  for (const char* path : {"/health", "/ready", "/ping"}) {
    get(
        path,
        [shared](const Call& call) {
          const std::optional<ApiError> error = shared->refusal();
          error ? call.refuse(*error) : call.respond_json("");
        },
        RouteAccess::kOpen);
  }
  get(
      "/live", [](const Call& call) { call.respond_json(""); }, RouteAccess::kOpen);
  get("/version", [](const Call& call) { call.respond_json("{\"version\":\"" TESSERA_VERSION "\"}"); });
  get("/v1/models", [&model](const Call& call) {
    const bool for_codex = query_value(call.request().query, "client_version").has_value();
    call.respond_json(models_body(model, for_codex));
  });
  get("/v1/models/*", [&model](const Call& call) { answer_model(call, model); });
  get("/api/tags", [&model](const Call& call) { call.respond_json(ollama_tags_body(model)); });
  get("/api/ps", [&model](const Call& call) { call.respond_json(ollama_ps_body(model)); });
  get("/api/version", [](const Call& call) { call.respond_json(ollama_version_body()); });
  for (const char* path : {"/get_model_info", "/model_info"})
    get(path, [&model](const Call& call) { call.respond_json(model_info_body(model)); });
  for (const char* path : {"/get_server_info", "/server_info"}) {
    get(path, [shared](const Call& call) {
      shared->ask_engine(call, [shared](Engine& asked) {
        return HttpResponse{.body = server_info_body(asked, shared->model), .headers = {}};
      });
    });
  }
  get("/get_load", [shared](const Call& call) { call.respond_json(LoadReport::short_body(shared->stats())); });
  get("/v1/loads",
      [shared, loads](const Call& call) { answer(call, loads->answer(call.request().query, shared->stats())); });
}

}  // namespace tessera
