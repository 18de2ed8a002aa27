// One runner: its description, its executable, and which sizes have graphs. The last is known here alone; dispatch's
// table, inventories and reports are made from it.
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
  std::vector<std::int64_t> full;                        // those that have a full graph beside their pieces, ascending
  std::vector<std::pair<std::int64_t, Status>> dropped;  // sizes that failed, and why
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
  // The size of the ladder that `rows` are padded to; rows past the largest take the largest.
  std::int64_t padded_size(std::int64_t rows) const;

  const CaptureReport& report() const { return report_; }
  bool captured(std::int64_t size) const;
  bool dropped(std::int64_t size) const;
  // Sizes of the ladder that are neither captured nor dropped, ascending; none where the runner is not captured.
  std::vector<std::int64_t> pending() const;

  // Stages the inputs and plans of some batch of the size and uploads them, for kernels that run before they are
  // recorded. Not called where all have run.
  using StageSize = std::function<Status(std::int64_t size)>;
  struct CaptureOptions {
    StageSize stage;
    bool show_progress = false;
    std::function<void(std::int64_t size)> before_each{};  // never while recording
    StageSize capture{};                                   // in the place of capture_one(size, stage)
  };
  // Captures every size, largest first: the largest plan fixes the arena, smaller ones fit in. A size that fails is
  // dropped and reported; kDeviceLost ends the capture.
  Status capture(std::span<const std::int64_t> sizes, const CaptureOptions& options);
  // Captures one more size. Its failure is the caller's to handle, and is reported too.
  Status capture_one(std::int64_t size, const StageSize& stage);
  // One graph of a captured size's whole forward, beside the pieces' (Executable::capture_full). On failure there is
  // none.
  Status capture_full(std::int64_t size);
  bool has_full(std::int64_t size) const;
  void drop_full(std::int64_t size);
  // Gives up a size that was captured: its replay does not work.
  void drop(std::int64_t size, Status why);

  // Precondition of both: the size was captured, or bound by make_ready; of kFull: has_full(size).
  Status replay(std::int64_t size, GraphForm form = GraphForm::kPieces) const {
    return form == GraphForm::kFull ? executable_->replay_full(bucket(size)) : executable_->replay(bucket(size));
  }
  Status run(std::int64_t size) const { return executable_->run(bucket(size)); }

  // Binds an uncaptured size. The last few stay bound, older ones are dropped.
  Status make_ready(std::int64_t size);
  // Drops what make_ready bound. Precondition: nothing enqueued of it is still to run.
  void forget(std::int64_t size);

 private:
  Status bind_and_capture(std::int64_t size, const StageSize& stage);

  static constexpr std::size_t kMaxUncaptured = 64;

  RunnerSpec spec_;
  std::unique_ptr<Executable> executable_;
  std::vector<std::int64_t> uncaptured_;  // bound sizes without graph, least recently used first
  CaptureReport report_;
};

}  // namespace tessera
