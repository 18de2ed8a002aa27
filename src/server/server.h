// The server: one engine, or several of one model, served over HTTP by the protocols of OpenAI, Anthropic and SGLang.
//
//   std::unique_ptr<Server> server = TRY(Server::create(options, *engine));
//   print(server->address());
//   TRY(server->run());  // until stop(), which a signal's thread calls
//
// Threads: run() is the I/O thread; the engine has one more, and text work has several (text_pools.h). A request goes
// I/O → pool (parse, render, tokenise) → I/O → engine. Its events return to the I/O thread once a step.
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
  // Binds and listens. `engine` outlives the server, and only the server may use it. Errors: wrong options, a chat
  // template that cannot be read, an address in use.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, Engine& engine);
  // Serves several engines of one model with the same options; requests are spread over them (replicas.h). Needs at
  // least one.
  static Result<std::unique_ptr<Server>> create(ServerOptions options, std::vector<Engine*> engines);
  ~Server();

  // "http://127.0.0.1:30000"
  std::string address() const;
  // Serves on the calling thread until stop() has completed or all engines have failed for good. If the engines have
  // failed, it returns their error: running requests end with it, and for `last_answers_s` more seconds /health and new
  // requests are answered 503 with it.
  Status run();
  // Drains the server; then run() returns. Callable from any thread. From now on /health and new requests are answered
  // 503. Running requests have up to `drain_s` seconds and then end with an error. Connections are accepted while
  // requests run, and for at least `notice_s` seconds. A second call shortens the wait.
  void stop(double drain_s, double notice_s = 0);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
