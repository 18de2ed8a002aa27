// Serves one engine, or several engines of one model, over HTTP, in the protocols of OpenAI, Anthropic, Ollama and
// SGLang.
//
//   std::unique_ptr<Server> server = TRY(Server::create(options, *engine));
//   print(server->address());
//   TRY(server->run());  // until stop(), which a signal's thread calls
//
// Threads: the thread that calls run() is the I/O thread, each engine has a thread, and text work has pools of threads
// (text_pools.h). A request passes from the I/O thread to a pool (parse, render, tokenise), back to the I/O thread, and
// to the engine. Its events return to the I/O thread once per step.
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
  // Serves one or more engines that have the same model and the same options. Requests are spread over the engines
  // (replicas.h).
  static Result<std::unique_ptr<Server>> create(ServerOptions options, std::vector<Engine*> engines);
  ~Server();

  // Returns the URL of the server: "http://127.0.0.1:30000".
  std::string address() const;
  // Serves on the calling thread until stop() has completed or all engines have failed for good. After such a failure,
  // running requests end with the engines' error. For `last_answers_s` more seconds, /health and new requests are
  // answered 503 with this error. Then run() returns the error.
  Status run();
  // Drains the server, after which run() returns. Callable from any thread. From now on /health and new requests are
  // answered 503. Running requests have up to `drain_s` seconds before they end with an error. Connections are accepted
  // while requests run, and for at least `notice_s` seconds. A further call can only shorten these times.
  void stop(double drain_s, double notice_s = 0);
  // Opens the access log's file again, so that it can be rotated. Callable from any thread. Lines of requests that end
  // before this call are in the earlier file.
  void reopen_access_log();

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
