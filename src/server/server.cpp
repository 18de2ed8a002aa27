#include "tessera/server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/device/cpu/host_limits.h"
#include "tessera/engine/ranks/replicas.h"
#include "tessera/server/adapters/adapter_routes.h"
#include "tessera/server/batches/batch_service.h"
#include "tessera/server/control_routes.h"
#include "tessera/server/events/kv_events.h"
#include "tessera/server/events/load_publisher.h"
#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/query.h"
#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/http/access.h"
#include "tessera/server/http/bodies/body_check.h"
#include "tessera/server/http/client_of.h"
#include "tessera/server/http/router.h"
#include "tessera/server/info_routes.h"
#include "tessera/server/job_routes.h"
#include "tessera/server/memory_budget.h"
#include "tessera/server/ollama/ollama_models.h"
#include "tessera/server/page.h"
#include "tessera/server/reference/reference_routes.h"
#include "tessera/server/refusals.h"
#include "tessera/server/report/engine_state.h"
#include "tessera/server/report/request_records.h"
#include "tessera/server/responses/response_routes.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/tools/generic_tools.h"
#include "tessera/server/work/event_queue.h"
#include "tessera/server/work/freed_memory.h"
#include "tessera/server/work/health_probe.h"
#include "tessera/server/work/live_jobs.h"
#include "tessera/server/work/request_memory.h"
#include "tessera/server/work/request_reader.h"
#include "tessera/server/work/text_pools.h"

namespace tessera {
namespace {

using Prepare = decltype(ReadRoute<ApiJob>::read);
using Build = decltype(ReadRoute<std::string>::read);
using Answering = std::function<void(const Call& call)>;

// The name in metrics and in the log for a request whose path has no route or was not looked up.
constexpr std::string_view kNoRoute = "other";

}  // namespace

struct Server::Impl {
  Impl(ServerOptions given, std::vector<Engine*> served)
      : options(std::move(given)),
        engines(std::move(served)),
        engine(*engines.front()),
        events(kBacklogSteps * most_events(engines)) {}

  // Returns the maximum number of events that all engines together make in one step: one for each running request.
  static std::size_t most_events(std::span<Engine* const> served) {
    return served.size() * static_cast<std::size_t>(served.front()->max_running());
  }

  Status start() {
    const Timeline::Clock::time_point began = Timeline::Clock::now();
    model = TRY(ServedModel::create(options, engine));
    if (model.adapters) model.adapters->add_devices(std::span(engines).subspan(1));
    const std::int64_t bytes = options.request_memory_bytes > 0
                                   ? options.request_memory_bytes
                                   : MemoryBudget::default_bytes(read_host_memory().available_bytes);
    memory = std::make_shared<MemoryBudget>(bytes);
    model.memory = memory;
    if (model.images) model.images->memory = memory;
    if (model.grammars) model.grammars->keep_at_most(kept_grammar_bytes(bytes));
    log_info("memory", "requests may hold {:.2f} GB", static_cast<double>(bytes) * 1e-9);
    model.requires_name = true;
    warn_of_tools();
    const MetricsStyle style = TRY(metrics_style(options.metrics_style));
    metrics.emplace(style, model.name);
    engine_state.emplace(engine, model);
    stored.emplace(ResponseStore::Limits{.bytes = options.stored_response_bytes,
                                         .number = static_cast<std::size_t>(options.stored_responses),
                                         .age_s = options.stored_response_age_s});
    add_routes();
    if (model.images) options.http.max_body_bytes = std::max(options.http.max_body_bytes, kMostImageBodyBytes);
    if (!options.file_folder.empty()) options.http.max_form_bytes = kMostUploadBytes;
    HttpOptions http_options = options.http;
    http_options.on_own_answer = [this](int status) { metrics->answered(kNoRoute, status); };
    http_options.check_head = [this](const HttpRequest& head) { return check_head(head); };
    http_options.memory = memory.get();
    records.emplace(TRY(RequestRecords::open(options, model.name)));
    if (records->wanted())
      http_options.on_finished = [this](const FinishedRequest& finished) { records->write(finished); };
    http = TRY(
        HttpServer::create(std::move(http_options), [this](HttpExchange exchange) { handle(std::move(exchange)); }));
    jobs.emplace(hooks(), *metrics);
    // Records the start's phase "server", which ends once the server listens. The engine has no thread of its own yet.
    engine.start().record("server", began, Timeline::Clock::now());
    const auto take = [this](std::span<EngineThread::Event> moved) {
      if (events.push(moved)) http->post([this] { dispatch_events(); });
    };
    kv_events = TRY(KvEvents::start(options.kv_events, engines).with_context("--kv-events-config"));
    replicas.emplace(engines, take, [this] { http->post([this] { end_if_failed(); }); });
    if (const std::string& endpoint = options.kv_events.load_endpoint; !endpoint.empty()) {
      loads = TRY(LoadPublisher::start(endpoint, replicas->size(), engine.max_running(),
                                       [this](int rank) -> std::optional<EngineStats> {
                                         if (!replicas->health(rank).ok()) return std::nullopt;
                                         return replicas->stats(rank);
                                       })
                      .with_context("--load-publish-endpoint"));
    }
    probe.emplace(model.generates(), hooks().submit);
    pools.emplace(TextPoolsOptions{.cores = std::thread::hardware_concurrency(), .fetches = most_fetches()},
                  options.api_keys);
    reader.emplace(model, options.http.max_body_bytes, *pools, *http);
    responses.emplace(*stored, *jobs, *reader, access.keys(), [this] { return refusal(); });
    responses->add_to(router);
    add_control_routes(router,
                       {.model = model,
                        .reader = *reader,
                        .jobs = *jobs,
                        .replicas = *replicas,
                        .keys = access.keys(),
                        .ask_engine = [this](Call call, auto ask) { ask_engine(std::move(call), std::move(ask)); }});
    TRY(add_batches());
    TRY(add_reference_routes(router));
    freed.emplace(
        *memory, [this](double seconds, std::function<void()> task) { http->after(seconds, std::move(task)); },
        [this](std::function<void()> task) { pools->post(TextWork::kSmall, std::move(task)); });
    return ok_status();
  }

  Status add_batches() {
    const auto requests = [this] {
      const EngineStats stats = replicas->stats();
      return stats.running + stats.queued;
    };
    batches = TRY(BatchService::create(
        options.file_folder, options.file_bytes,
        {.model = model,
         .responses = *stored,
         .reader = *reader,
         .work = {.pools = *pools, .http = *http, .keys = access.keys()},
         .owner_of_unnamed = owner_of_unnamed(options.api_keys),
         .hooks = {.submit = [this](Ticket ticket, Request request) { replicas->submit(ticket, std::move(request)); },
                   .cancel = [this](Ticket ticket) { replicas->cancel(ticket); },
                   .engine_requests = requests,
                   .ends = [this] { return refusal().has_value(); },
                   .most_requests = static_cast<std::int64_t>(most_events(engines)),
                   .trace = records->span_sink()}}));
    batches->add_to(router);
    return ok_status();
  }

  // Warns, once at the start, if chats may have tools but the model's tool format is unknown.
  void warn_of_tools() const {
    if (model.generates() && model.chat && model.tool_call_parser == kGenericToolParser)
      log_warn("server", "{}", kGenericToolNote);
  }

  // Returns how many additional threads the pool for images needs. At most this number of the pool's threads may fetch
  // images, and thus wait for other servers, at the same time.
  std::size_t most_fetches() const {
    return model.images && model.images->fetcher ? static_cast<std::size_t>(UrlFetchOptions().most_at_once) : 0;
  }

  void dispatch_events() {
    events.drain([this](std::span<EngineThread::Event> moved) {
      probe->dispatch(moved);
      batches->dispatch(moved);
      jobs->dispatch(moved);
    });
  }

  // Stops the server if all engines have failed. Called after the last events of an engine that has failed.
  void end_if_failed() {
    if (replicas->health().ok()) return;  // other engines still serve
    http->stop({.drain_s = options.last_answers_s, .notice_s = options.last_answers_s, .give_up = [this] {
                  fail_all(engine_failed(replicas->health()));
                }});
  }

  void fail_all(const ApiError& error) {
    jobs->fail_all(error);
    probe->fail_all(error);
  }

  LiveJobs::Hooks hooks() {
    return {.submit = [this](Ticket ticket, Request request) { replicas->submit(ticket, std::move(request)); },
            .cancel = [this](Ticket ticket) { replicas->cancel(ticket); },
            .abort = [this](Ticket ticket) { replicas->abort(ticket); },
            .after = [this](double seconds, std::function<void()> task) { http->after(seconds, std::move(task)); },
            .build_elsewhere =
                [this](const Call& call, std::function<std::string()> build, std::function<void(std::string)> then) {
                  pools->post(TextWork::kAnswers, call,
                              [this, call, build = std::move(build), then = std::move(then)]() mutable {
                                auto built = guarded<std::string>([&]() -> ApiResult<std::string> { return build(); });
                                http->post([call, built = std::move(built), then = std::move(then)]() mutable {
                                  if (!built.ok()) return call.fail(built.error());
                                  then(*std::move(built));
                                });
                              });
                }};
  }

  // Checks what the head alone decides: API key, route, and the body's type. A refused request gets no Call, so it is
  // counted and logged here.
  std::optional<HttpResponse> check_head(const HttpRequest& head) {
    ApiResult<const Route*> route = router.find(head.method, head.path);
    const std::string_view name = route.ok() ? std::string_view((*route)->path) : kNoRoute;
    std::optional<HttpResponse> refused = refuse_head(head, route, name);
    if (!refused) return std::nullopt;
    metrics->answered(name, refused->status);
    if (options.log_requests) log_info("server", "{} {} {}: its body was not read", head.method, name, refused->status);
    return refused;
  }

  std::optional<HttpResponse> refuse_head(const HttpRequest& head, ApiResult<const Route*>& route,
                                          std::string_view name) const {
    const RouteAccess needed = route.ok() ? (*route)->access : RouteAccess::kClient;
    std::optional<ApiError> error = access.check(head, needed);
    if (!error && draining && !answers_while_draining(name)) error = refusal();
    if (!error && route.ok()) return check_body(head, (*route)->body);
    if (!error) error = route.error();
    HttpResponse response = error->to_response(error_shape_of(head.path));
    if (response.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (response.status == 405) response.headers.emplace_back("Allow", router.methods(head.path));
    return response;
  }

  // Handles a request whose head was accepted, so it has a route.
  void handle(HttpExchange exchange) {
    const Route& route = **router.find(exchange.request().method, exchange.request().path);
    Call call(std::move(exchange), route.path, *metrics, options.log_requests);
    records->note(call);
    freed->request_came();
    route.handler(std::move(call));
  }

  std::optional<ApiError> refusal() const {
    if (draining) return unavailable("draining: the server is shutting down and takes no new requests");
    if (const Status health = replicas->health(); !health.ok()) return engine_failed(health);
    return std::nullopt;
  }

  static void answer(const Call& call, ApiResult<std::string> body) {
    if (!body.ok()) return call.refuse(body.error());
    call.respond_json(*std::move(body));
  }

  // Starts a request that a pool's thread prepares and the engine runs.
  void run_job(Call call, Prepare prepare) {
    if (const std::optional<ApiError> error = refusal()) {
      call.refuse(*error);
      return;
    }
    reader->read<ApiJob>(std::move(call), prepare, [this](Call prepared, ApiResult<ApiJob> job) {
      if (!job.ok()) return prepared.refuse(job.error());
      own_sessions([&] { return owner_of(prepared.request(), access.keys()); }, job->requests);
      jobs->start(std::move(prepared), *std::move(job));
    });
  }

  // Starts a request that a pool's thread answers without the engine.
  void run_build(Call call, Build build) {
    reader->read<std::string>(std::move(call), build,
                              [](const Call& built, ApiResult<std::string> body) { answer(built, std::move(body)); });
  }

  void probe_health(Call call) {
    if (const std::optional<ApiError> error = refusal()) return call.refuse(*error);
    probe->ask(std::move(call));
  }

  // Starts a request that the first engine's thread answers between two steps.
  void ask_engine(Call call, std::function<HttpResponse(Engine&)> ask) {
    replicas->post([this, call = std::move(call), ask = std::move(ask)](Engine& asked) mutable {
      http->post([call = std::move(call), response = ask(asked)]() mutable { call.respond(std::move(response)); });
    });
  }

  void add_job(const char* path, Prepare prepare) {
    router.add({"POST", path, [this, prepare](Call call) { run_job(std::move(call), prepare); }});
  }
  void add_build(const char* path, Build build) {
    router.add({"POST", path, [this, build](Call call) { run_build(std::move(call), build); }});
  }
  void add_get(const char* path, Answering answering, RouteAccess needed = RouteAccess::kClient) {
    router.add({"GET", path, std::move(answering), needed});
  }

  void add_routes() {
    for (const ReadRoute<ApiJob>& route : job_routes()) add_job(route.path, route.read);
    for (const ReadRoute<std::string>& route : build_routes()) add_build(route.path, route.read);
    add_get("/health_generate", [this](Call call) { probe_health(std::move(call)); });
    add_get(
        "/",
        [](const Call& call) { call.respond(asks_for_page(call.request()) ? page_response() : ollama_is_running()); },
        RouteAccess::kOpen);
    add_get("/engine_state", [this](const Call& call) {
      call.respond_json(engine_state->body(replicas->stats(), metrics->latencies()));
    });
    add_get("/metrics", [this](const Call& call) { scrape(call); });
    add_info_routes(router,
                    {.model = model,
                     .engine = engine,
                     .stats = [this] { return replicas->each_stats(); },
                     .refusal = [this] { return refusal(); },
                     .ask_engine = [this](auto call, auto ask) { ask_engine(std::move(call), std::move(ask)); }});
    add_adapter_routes(router, {.model = model,
                                .reader = [this]() -> RequestReader& { return *reader; },
                                .engines = {.run = [this](const auto& task) { replicas->post_to_all(task); },
                                            .count = static_cast<int>(engines.size())},
                                .on_io = [this](auto task) { http->post(std::move(task)); },
                                .after = [this](double seconds, auto task) { http->after(seconds, std::move(task)); }});
  }

  void scrape(const Call& call) {
    std::string body = metrics->scrape(replicas->each_stats(), *memory) + pool_metrics(*pools) + records->metrics();
    body += batches->metrics() + kv_events->metrics();
    call.respond({.content_type = std::string(kMetricsContentType), .body = std::move(body), .headers = {}});
  }

  // The number of full steps that the I/O thread may lag behind the engine before the event queue allocates memory.
  static constexpr std::size_t kBacklogSteps = 4;

  // Members are ordered so that threads end before the objects to which they post.
  ServerOptions options;
  std::vector<Engine*> engines;
  Engine& engine;  // the first engine, for facts that all engines share
  ServedModel model;
  std::shared_ptr<MemoryBudget> memory;  // shared, because images that an engine still holds refer to it
  Router router;
  Access access{options.api_keys, options.admin_api_keys};
  std::optional<ServerMetrics> metrics;
  std::optional<EngineState> engine_state;
  std::optional<RequestRecords> records;
  std::atomic<bool> draining = false;
  EventQueue events;
  std::unique_ptr<HttpServer> http;
  std::optional<ResponseStore> stored;
  std::optional<LiveJobs> jobs;
  std::unique_ptr<KvEvents> kv_events;
  std::optional<Replicas> replicas;
  std::unique_ptr<LoadPublisher> loads;  // null: the engines' loads are not published
  std::optional<HealthProbe> probe;
  std::optional<RequestReader> reader;
  std::optional<ResponseRoutes> responses;
  std::unique_ptr<BatchService> batches;
  std::optional<FreedMemory> freed;
  std::optional<TextPools> pools;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, Engine& engine) {
  return create(std::move(options), std::vector<Engine*>{&engine});
}

Result<std::unique_ptr<Server>> Server::create(ServerOptions options, std::vector<Engine*> engines) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(engines));
  TRY(impl->start());
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::string Server::address() const {
  const std::string& host = impl_->options.http.host;
  const std::uint16_t port = impl_->http->port();
  const char* const scheme = impl_->options.http.tls.certificate_file.empty() ? "http" : "https";
  if (host.find(':') != std::string::npos) return fmt::format("{}://[{}]:{}", scheme, host, port);
  return fmt::format("{}://{}:{}", scheme, host, port);
}

Status Server::run() {
  impl_->http->run();
  return impl_->replicas->health();
}

void Server::stop(double drain_s, double notice_s) {
  impl_->draining = true;
  impl_->http->stop({.drain_s = drain_s, .notice_s = notice_s, .give_up = [impl = impl_.get()] {
                       impl->fail_all(unavailable("the server was stopped before the request's end"));
                     }});
}

void Server::reopen_access_log() {
  impl_->http->post([impl = impl_.get()] { impl->records->reopen_log(); });
}

}  // namespace tessera
