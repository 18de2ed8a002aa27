#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tessera/cli/api_keys.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/end_within.h"
#include "tessera/cli/open_files.h"
#include "tessera/cli/output.h"
#include "tessera/cli/start_replicas.h"
#include "tessera/cli/stop_signal.h"
#include "tessera/server/server.h"

namespace tessera::cli {
namespace {

// That the engines have to be taken down where they have failed.
constexpr std::chrono::seconds kTakingDown{2};

// An address that is taken is told before the model is loaded.
Status check_address(const HttpOptions& options) {
  const Result<std::unique_ptr<HttpServer>> probe = HttpServer::create(options, [](const HttpExchange&) {});
  return probe.ok() ? ok_status() : probe.status();
}

}  // namespace

Status run_serve(const ServeOptions& options) {
  ServerOptions server_options = options.server;
  server_options.api_keys = TRY(read_api_keys(options.server.api_keys, options.api_key_file,
                                              [](const char* name) -> const char* { return std::getenv(name); }));
  TRY(check_address(server_options.http));
  allow_open_files();
  std::signal(SIGPIPE, SIG_IGN);
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = true;
  const std::vector<std::unique_ptr<Engine>> engines =
      TRY(start_replicas(engine_options, static_cast<int>(options.replicas)));
  std::vector<Engine*> served;
  for (const std::unique_ptr<Engine>& engine : engines) served.push_back(engine.get());
  const std::unique_ptr<Server> server = TRY(Server::create(server_options, served));
  const std::unique_ptr<StopSignal> stop = TRY(StopSignal::watch({SIGINT, SIGTERM}, [&](int count) {
    write_error(count == 1 ? fmt::format("\nStopping: requests under way have {} s. Once more to stop at once.\n",
                                         options.drain_s)
                           : std::string("\nStopping at once.\n"));
    server->stop(count == 1 ? options.drain_s : 0, options.notice_s);
  }));
  write_error(fmt::format("Ready after {}\n", engines.front()->start().line()));
  TRY(write_output(fmt::format("Serving {} at {}\n", options.engine.model_path, server->address())));
  const Status ended = server->run();
  // A rank or a driver may hang when it is taken down, and a supervisor waits for the end.
  if (!ended.ok()) end_within(kTakingDown, ended);
  return ended;
}

}  // namespace tessera::cli
