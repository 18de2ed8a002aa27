// A server of this process, on a free port of 127.0.0.1 and threads of its own.
#pragma once

#include <memory>
#include <string>

#include "tessera/base/status.h"
#include "tessera/engine/engine.h"

namespace tessera::cli {

class LocalServer {
 public:
  // Loads the model. `connections`: so many clients at once.
  static Result<std::unique_ptr<LocalServer>> start(const EngineOptions& options, const std::string& model_name,
                                                    std::size_t connections);
  // Drops what is under way.
  ~LocalServer();

  std::string url() const;
  const ModelConfig& config() const;

 private:
  struct Impl;
  explicit LocalServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
