#include <fmt/format.h>

#include <csignal>
#include <memory>

#include "tessera/cli/commands.h"
#include "tessera/cli/open_files.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session.h"
#include "tessera/cli/stop_signal.h"
#include "tessera/server/server.h"

namespace tessera::cli {
namespace {

// An address that is taken is told before the model is loaded.
Status check_address(const HttpOptions& options) {
  const Result<std::unique_ptr<HttpServer>> probe = HttpServer::create(options, [](const HttpExchange&) {});
  return probe.ok() ? ok_status() : probe.status();
}

}  // namespace

Status run_serve(const ServeOptions& options) {
  TRY(check_address(options.server.http));
  allow_open_files();
  std::signal(SIGPIPE, SIG_IGN);
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = true;
  const std::unique_ptr<Engine> engine = TRY(start_engine(engine_options));
  const std::unique_ptr<Server> server = TRY(Server::create(options.server, *engine));
  const std::unique_ptr<StopSignal> stop = TRY(StopSignal::watch({SIGINT, SIGTERM}, [&](int count) {
    write_error(count == 1 ? fmt::format("\nStopping: requests under way have {} s. Once more to stop at once.\n",
                                         options.drain_s)
                           : std::string("\nStopping at once.\n"));
    server->stop(count == 1 ? options.drain_s : 0);
  }));
  TRY(write_output(fmt::format("Serving {} at {}\n", options.engine.model_path, server->address())));
  return server->run();
}

}  // namespace tessera::cli
