// The server: an engine, or several of one model, spoken to by the protocols of OpenAI and SGLang over HTTP.
//
//   std::unique_ptr<Server> server = TRY(Server::create(options, *engine));
//   print(server->address());
//   TRY(server->run());  // until stop(), which a signal's thread calls
//
// Threads: run() is the I/O thread; beside it the engine has one, and work on texts has several (text_pools.h). A
// request goes I/O → pool (parse, render, tokenise) → I/O → engine, and its events come back to the I/O thread once a
// step.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"
#include "tessera/server/server_options.h"

namespace tessera {

class Server {
 public:
  // Binds and listens. `engine` outlives the server and is used by it alone. Errors: options that are wrong, a
  // chat template that cannot be read, an address in use.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, Engine& engine);
  // The same for engines of one model with the same options, which share the requests (replicas.h). One at least.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, std::vector<Engine*> engines);
  ~Server();

  // "http://127.0.0.1:30000"
  std::string address() const;
  // Serves on the calling thread until stop() has done its work, or all engines have failed for good: that is the error
  // then. Requests under way end with it, and for `last_answers_s` more /health and new requests are answered 503 with
  // it.
  Status run();
  // From any thread: /health and new requests are answered 503 from here on, running ones have up to `drain_s` seconds,
  // after which they end with an error; then run() returns. Connections are accepted while requests run, and for
  // `notice_s` seconds at least. A second call shortens the wait.
  void stop(double drain_s, double notice_s = 0);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
