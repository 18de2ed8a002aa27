// Holds one of a model's runners, for example prefill or decode (runner_spec.h): its description, its executable, and
// the list of sizes that have graphs. There is no other such list. The dispatch table, the inventories and the reports
// are all derived from it.
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
#include "tessera/runner/dispatch/dispatch.h"
#include "tessera/runner/runner_spec.h"

namespace tessera {

struct CaptureReport {
  std::vector<std::int64_t> captured;                    // sizes, ascending
  std::vector<std::int64_t> full;                        // sizes that also have a full graph, ascending
  std::vector<std::pair<std::int64_t, Status>> dropped;  // sizes whose capture or replay failed, and the error
  double seconds = 0;
  GraphStats graphs;
};

class GraphRunner {
 public:
  GraphRunner(RunnerSpec spec, std::unique_ptr<Executable> executable)
      : spec_(std::move(spec)), executable_(std::move(executable)) {}

  const RunnerSpec& spec() const { return spec_; }
  std::string_view name() const { return spec_.name(); }
  Executable& executable() const { return *executable_; }
  ir::Bucket bucket(std::int64_t size) const { return spec_.bucket(size); }
  // Returns the smallest size of the ladder that is at least `rows`, or the largest size if `rows` exceeds it.
  std::int64_t padded_size(std::int64_t rows) const;

  const CaptureReport& report() const { return report_; }
  bool captured(std::int64_t size) const;
  bool dropped(std::int64_t size) const;
  // Returns the sizes of the ladder that are neither captured nor dropped, ascending. The result is empty if the runner
  // has no graphs.
  std::vector<std::int64_t> pending() const;

  // Stages and uploads the inputs and plans of a batch of this size. capture_one() calls this function if some kernels
  // must run once before they are recorded.
  using StageSize = std::function<Status(std::int64_t size)>;
  // Calls `capture` for every size. The largest size comes first, because its plan decides the size of the arena, and
  // smaller plans fit into this arena. Leaves out a size that fails. Only kDeviceLost ends the loop with an error.
  Status capture_each(std::span<const std::int64_t> sizes, bool show_progress,
                      const std::function<Status(std::int64_t size)>& capture) const;
  // Captures one more size. If the capture fails, returns the error, and drops the size unless the device is lost.
  Status capture_one(std::int64_t size, const StageSize& stage);
  // Captures the whole forward of a captured size as one more graph, and keeps the graphs of its pieces
  // (Executable::capture_full). After a failure the size has no full graph.
  Status capture_full(std::int64_t size);
  bool has_full(std::int64_t size) const;
  void drop_full(std::int64_t size);
  // Drops a size, whether it is captured or not, and records the reason in the report.
  void drop(std::int64_t size, Status why);

  // Precondition of replay() and run(): the size was captured, or bound by make_ready(). kFull needs has_full(size).
  Status replay(std::int64_t size, GraphForm form = GraphForm::kPieces) const {
    return form == GraphForm::kFull ? executable_->replay_full(bucket(size)) : executable_->replay(bucket(size));
  }
  Status run(std::int64_t size) const { return executable_->run(bucket(size)); }

  // Binds a size without capturing it. Up to kMaxUncaptured sizes stay bound in this way. If a call would exceed this
  // number, it unbinds the least recently used of these sizes.
  Status make_ready(std::int64_t size);
  // Unbinds a size that make_ready() bound. Precondition: the device has finished all work enqueued for it.
  void forget(std::int64_t size);

 private:
  Status bind_and_capture(std::int64_t size, const StageSize& stage);

  static constexpr std::size_t kMaxUncaptured = 64;

  RunnerSpec spec_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::int64_t> uncaptured_;  // bound sizes without a graph, least recently used first
  CaptureReport report_;
};

}  // namespace tessera
