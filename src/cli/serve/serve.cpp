#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/cli/commands.h"
#include "tessera/cli/output.h"
#include "tessera/cli/serve/end_within.h"
#include "tessera/cli/serve/start_replicas.h"
#include "tessera/cli/serve/stop_signal.h"
#include "tessera/cli/serve/trace_environment.h"
#include "tessera/cli/session/api_keys.h"
#include "tessera/cli/session/open_files.h"
#include "tessera/server/events/kv_events.h"
#include "tessera/server/events/load_publisher.h"
#include "tessera/server/server.h"
#include "tessera/server/work/freed_memory.h"

namespace tessera::cli {
namespace {

// The time limit for destroying engines after a failure. When a node ends, it waits for the other nodes for at most the
// drain time plus this time.
constexpr std::chrono::seconds kTakingDown{2};

// Checks, before the model is loaded, that the address is free and that the certificates can be used.
Status check_address(const HttpOptions& options) {
  const Result<std::unique_ptr<HttpServer>> probe = HttpServer::create(options, [](const HttpExchange&) {});
  return probe.ok() ? ok_status() : probe.status();
}

// Stops a node's server together with the servers of the other nodes. If one of these servers is told to stop, all of
// them stop.
class StopWithOthers {
 public:
  // `others` is null if there are no other nodes. The server must outlive the object.
  StopWithOthers(CommonEnd* others, Server& server, const ServeOptions& options)
      : others_(others), server_(server), options_(options) {}
  ~StopWithOthers() {
    if (others_ != nullptr) others_->when_told(nullptr);
  }
  StopWithOthers(const StopWithOthers&) = delete;
  StopWithOthers& operator=(const StopWithOthers&) = delete;

  // Starts to watch the other nodes. If one of them is told to stop, this server stops too.
  void listen() {
    if (others_ == nullptr) return;
    others_->when_told([this](int node) {
      if (stopping_.exchange(true)) return;
      write_error(fmt::format("Stopping with node {}: requests under way have {} s.\n", node, options_.drain_s));
      server_.stop(options_.drain_s, options_.notice_s);
    });
  }
  // Handles the `count`-th signal.
  void stop(int count) {
    stopping_ = true;
    write_error(count == 1 ? fmt::format("\nStopping: requests under way have {} s. Once more to stop at once.\n",
                                         options_.drain_s)
                           : std::string("\nStopping at once.\n"));
    server_.stop(count == 1 ? options_.drain_s : 0, options_.notice_s);
    if (others_ == nullptr) return;
    if (count == 1) {
      others_->tell();
    } else {
      others_->give_up();
    }
  }
  // Waits for the other nodes, because their ranks need this node's ranks. The other nodes get as much time for their
  // requests as this node had.
  void leave() {
    if (others_ == nullptr) return;
    const auto limit = std::chrono::duration<double>(options_.drain_s) + kTakingDown;
    if (!others_->leave_together(std::chrono::duration_cast<std::chrono::milliseconds>(limit)))
      write_error("Ended before the other nodes, whose requests fail.\n");
  }

 private:
  CommonEnd* const others_;
  Server& server_;
  const ServeOptions& options_;
  std::atomic<bool> stopping_ = false;
};

bool logs_to_file(const ServerOptions& options) { return !options.access_log.empty() && options.access_log != "-"; }

Status serve(const ServeOptions& options, Server& server, const Timeline& start, CommonEnd* others) {
  StopWithOthers end(others, server, options);
  // Without a log file to reopen, SIGHUP ends the process. The system sends it when the terminal is closed.
  std::function<void()> on_hangup;
  if (logs_to_file(options.server)) on_hangup = [&server] { server.reopen_access_log(); };
  const std::unique_ptr<StopSignal> stop = TRY(StopSignal::watch(
      {SIGINT, SIGTERM}, [&end](int count) { end.stop(count); }, std::move(on_hangup)));
  end.listen();
  write_error(fmt::format("Ready after {}\n", start.line()));
  TRY(write_output(fmt::format("Serving {} at {}\n", options.engine.model_path, server.address())));
  const Status ended = server.run();
  // Limits the time of the cleanup. The destructor of a rank or a driver may hang, but a supervisor restarts the server
  // only after the process has ended.
  if (!ended.ok()) end_within(kTakingDown, ended);
  if (ended.ok()) end.leave();
  return ended;
}

}  // namespace

Status run_serve(const ServeOptions& options) {
  ServerOptions server_options = options.server;
  const auto get = [](const char* name) -> const char* { return std::getenv(name); };
  server_options.api_keys = TRY(read_api_keys(kApiKeys, options.server.api_keys, options.api_key_file, get));
  server_options.admin_api_keys =
      TRY(read_api_keys(kAdminApiKeys, options.server.admin_api_keys, options.admin_api_key_file, get));
  TRY(take_trace_environment(get, server_options.traces));
  TlsOptions& tls = server_options.http.tls;
  const char* const password = get("TESSERA_SSL_KEYFILE_PASSWORD");
  if (tls.key_password.empty() && password != nullptr) tls.key_password = password;
  TRY(check_address(server_options.http));
  TRY(check_kv_events(server_options.kv_events, static_cast<int>(options.replicas)).with_context("--kv-events-config"));
  TRY(check_load_endpoint(server_options.kv_events.load_endpoint, static_cast<int>(options.replicas))
          .with_context("--load-publish-endpoint"));
  allow_open_files();
  limit_free_ends();
  std::signal(SIGPIPE, SIG_IGN);
  if (logs_to_file(server_options))
    // A log rotation sends SIGHUP, which must not end the process during its start. serve() installs a handler later.
    std::signal(SIGHUP, SIG_IGN);
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = true;
  const StartedReplicas started = TRY(start_replicas(engine_options, static_cast<int>(options.replicas)));
  CommonEnd* const others = started.lockstep == nullptr ? nullptr : started.lockstep->common_end();
  std::vector<Engine*> served;
  for (const std::unique_ptr<Engine>& engine : started.engines) served.push_back(engine.get());
  const Result<std::unique_ptr<Server>> server = Server::create(std::move(server_options), served);
  Status ended = server.ok() ? serve(options, **server, started.engines.front()->start(), others) : server.status();
  // This node sends its error to the other nodes before it destroys its engines. If it destroyed them first, the other
  // nodes would get a less informative error.
  if (!ended.ok() && others != nullptr) others->leave(ended);
  return ended;
}

}  // namespace tessera::cli
