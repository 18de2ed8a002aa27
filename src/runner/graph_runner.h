// One executable with its captured sizes: the prefill runner is one over token counts, cut at
// attention; the decode runner one over batch sizes, whole.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/piecewise/executable.h"

namespace tessera {

struct CaptureReport {
  std::vector<std::int64_t> captured;                    // sizes, ascending
  std::vector<std::pair<std::int64_t, Status>> dropped;  // sizes that failed, and why
  double seconds = 0;
  MemoryNeed predicted;  // the largest need of any size, from shapes alone
  GraphStats graphs;
};

class GraphRunner {
 public:
  // `bucket_of(size)` assigns every symbol of the executable's graph.
  GraphRunner(std::string name, std::unique_ptr<Executable> executable,
              std::function<ir::Bucket(std::int64_t)> bucket_of)
      : name_(std::move(name)), executable_(std::move(executable)), bucket_of_(std::move(bucket_of)) {}

  const std::string& name() const { return name_; }
  Executable& executable() const { return *executable_; }
  ir::Bucket bucket(std::int64_t size) const { return bucket_of_(size); }
  const CaptureReport& report() const { return report_; }
  bool captured(std::int64_t size) const { return executable_->captured(bucket(size)); }

  struct CaptureOptions {
    bool show_progress = false;
    std::function<Status(std::int64_t size)> before_each{};  // never while recording
  };
  // Captures every size, largest first (D2): the largest plan fixes the arena, smaller ones fit in. A
  // size that fails is dropped and reported; kDeviceLost ends the capture.
  Status capture(std::span<const std::int64_t> sizes, const CaptureOptions& options);
  // Captures one more size. Its failure is the caller's to handle, and is reported too.
  Status capture_one(std::int64_t size);
  // Gives up a size that was captured: its replay does not work.
  void drop(std::int64_t size, Status why);

  // Precondition of both: the size was captured, or bound by make_ready.
  Status replay(std::int64_t size) const { return executable_->replay(bucket(size)); }
  Status run(std::int64_t size) const { return executable_->run(bucket(size)); }

  // Binds an uncaptured size. The last few stay bound, older ones are dropped.
  Status make_ready(std::int64_t size);
  // Drops what make_ready bound. Precondition: nothing enqueued of it is still to run.
  void forget(std::int64_t size);

 private:
  static constexpr std::size_t kMaxUncaptured = 48;

  std::string name_;
  std::unique_ptr<Executable> executable_;
  std::function<ir::Bucket(std::int64_t)> bucket_of_;
  std::vector<std::int64_t> uncaptured_;  // bound sizes without graph, least recently used first
  CaptureReport report_;
};

}  // namespace tessera
