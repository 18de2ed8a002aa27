// Runs a server in this process, on a free port of 127.0.0.1 and on threads of its own.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

class LocalServer {
 public:
  struct Options {
    EngineOptions engine;
    std::string model_name;
    std::size_t connections = 0;  // number of simultaneous clients
    bool profile = false;         // whether to record the engine's steps from the start
  };
  // Loads the model and starts serving it.
  static Result<std::unique_ptr<LocalServer>> start(const Options& options);
  // Ends the server and drops running requests.
  ~LocalServer();
  // Ends the server, drops running requests, and returns the profile. Precondition: the server was started with
  // Options::profile.
  static EngineProfile end_profile(std::unique_ptr<LocalServer> server);

  std::string url() const;
  const ModelConfig& config() const;

 private:
  struct Impl;
  explicit LocalServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
