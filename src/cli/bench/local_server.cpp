#include "tessera/cli/bench/local_server.h"

#include <thread>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/server/server.h"

namespace tessera::cli {

struct LocalServer::Impl {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Server> server;
  std::thread thread;

  ~Impl() { stop(); }

  void stop() {
    if (!thread.joinable()) return;
    server->stop(/*drain_s=*/0);
    thread.join();
    server.reset();
  }
};

LocalServer::LocalServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalServer::~LocalServer() = default;

Result<std::unique_ptr<LocalServer>> LocalServer::start(const Options& options) {
  auto impl = std::make_unique<Impl>();
  impl->engine = TRY(Engine::create(options.engine));
  if (options.profile) TRY(impl->engine->start_profile());
  ServerOptions server;
  server.http.port = 0;
  server.http.max_connections = options.connections;
  server.served_model_name = options.model_name;
  server.tool_call_parser = "none";  // the benchmark uses no tools, so this only avoids a warning about tool calls
  impl->server = TRY(Server::create(server, *impl->engine));
  impl->thread = std::thread([running = impl->server.get()] {
    if (const Status status = running->run(); !status.ok()) log_error("server", "{}", status.message());
  });
  return std::unique_ptr<LocalServer>(new LocalServer(std::move(impl)));
}

EngineProfile LocalServer::end_profile(std::unique_ptr<LocalServer> server) {
  server->impl_->stop();
  return server->impl_->engine->end_profile();
}

std::string LocalServer::url() const { return impl_->server->address(); }
const ModelConfig& LocalServer::config() const { return impl_->engine->config(); }

}  // namespace tessera::cli
