// Files and batches of a server as one part: the stores in their folder, the thread that answers batches, and the
// routes.
//
// Threads: the I/O thread, except for what BatchRunner says.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/status.h"
#include "tessera/server/batches/batch_routes.h"
#include "tessera/server/batches/batch_runner.h"
#include "tessera/server/batches/file_folder.h"
#include "tessera/server/batches/file_routes.h"

namespace tessera {

// The most bytes of an uploaded file's form, as OpenAI takes for batches.
inline constexpr std::size_t kMostUploadBytes = std::size_t{200} << 20;

class BatchService {
 public:
  // What the service works with; everything outlives it.
  struct Server {
    const ServedModel& model;
    ResponseStore& responses;
    RequestReader& reader;
    RouteWork work;
    BatchRunner::Hooks hooks;
  };

  // `folder`: "" for none; then the routes refuse. `bytes`: the limit of all files. Errors name the folder.
  static Result<std::unique_ptr<BatchService>> create(const std::string& folder, std::int64_t bytes, Server server);

  // Adds the routes. This object must outlive the use of the router.
  void add_to(Router& router);
  // Takes the events of batches' requests; leaves the others as they are.
  void dispatch(std::span<EngineThread::Event> events) {
    if (runner_) runner_->dispatch(events);
  }
  // Returns metrics in Prometheus' text format; "" without a folder.
  std::string metrics() const;

 private:
  BatchService() = default;

  std::optional<FileFolder> folder_;
  std::unique_ptr<FileStore> files_;
  std::unique_ptr<BatchStore> batches_;
  std::unique_ptr<BatchRunner> runner_;
  std::optional<FileRoutes> file_routes_;
  std::optional<BatchRoutes> batch_routes_;
};

}  // namespace tessera
