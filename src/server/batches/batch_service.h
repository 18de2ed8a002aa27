// Owns what a server needs for files and batches: the stores in one folder, the thread that runs batches, and the
// routes.
//
// Threads: used on the I/O thread, but any thread may call dispatch().
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

// The maximum size of an upload request's form (multipart/form-data), in bytes. OpenAI has the same limit for batch
// files.
inline constexpr std::size_t kMostUploadBytes = std::size_t{200} << 20;

class BatchService {
 public:
  // The parts of the server that the service uses. All of them must outlive the service.
  struct Server {
    const ServedModel& model;
    ResponseStore& responses;
    RequestReader& reader;
    RouteWork work;
    std::string owner_of_unnamed;  // becomes the owner of the folder's files and batches that have no owner
    BatchRunner::Hooks hooks;
  };

  // If `folder` is "", there is no folder, and the routes refuse every request. `bytes` is the maximum number of bytes
  // of all files together. Errors name the folder.
  static Result<std::unique_ptr<BatchService>> create(const std::string& folder, std::int64_t bytes, Server server);

  // Adds the routes. This object must outlive the use of the router.
  void add_to(Router& router);
  // Processes the events of the batches' requests, and ignores all other events.
  void dispatch(std::span<EngineThread::Event> events) {
    if (runner_) runner_->dispatch(events);
  }
  // Returns metrics in Prometheus' text format, or "" without a folder.
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
