#include "tessera/runner/capture/full_measurement.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "tessera/base/log.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/ranks/rank_order.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

double median_bound(std::vector<double> ratios) {
  const auto third_largest = ratios.begin() + 2;
  std::nth_element(ratios.begin(), third_largest, ratios.end(), std::greater<>());
  return *third_largest;
}

Result<bool> FullMeasurement::measure_next() {
  if (!dispatcher_.chooses_full() || !dispatcher_.has_memory_for_full()) return false;
  if (at_ && !runner().has_full(at_->size)) at_.reset();  // the size was dropped since the last call
  if (!at_) {
    const std::optional<std::int64_t> size = next_size();
    if (!size) return false;
    at_ = Candidate{.size = *size};
  }
  const Status status = work();
  if (status.code() == StatusCode::kDeviceLost) return status;
  if (!status.ok()) {
    log_warn("dispatch", "prefill size {} is not measured as one graph: {}", at_->size, status.to_string());
    TRY(decide({.ratio = 1, .equal = false}));
  }
  return true;
}

// Returns the next size to measure. Skips sizes for which page_batch() makes no batch, and sizes whose full graph was
// measured before, perhaps in an earlier run of the program. Returns nothing after two consecutive sizes without a
// gain, or if the next size cannot gain enough.
std::optional<std::int64_t> FullMeasurement::next_size() {
  constexpr int kMostLosses = 2;  // consecutive sizes without a gain
  const CostTable& costs = dispatcher_.costs();
  int losses = 0;
  for (const std::int64_t size : runner().report().captured) {
    if (!page_batch(size, parts_.model.options, parts_.model.graphs.body.cache_groups)) continue;
    if (!costs.full(size)) return may_win(size) ? std::optional(size) : std::nullopt;
    losses = costs.full_wins(size) ? 0 : losses + 1;
    if (losses == kMostLosses) return std::nullopt;
  }
  return std::nullopt;
}

bool FullMeasurement::may_win(std::int64_t size) {
  // An upper bound of the time that a cut (the border between two pieces) costs, in milliseconds. It covers the
  // launches around the cut and the gaps between these launches.
  constexpr double kMostCutMs = 0.005;
  const auto cuts = static_cast<double>(runner().executable().graph().num_split_ops());
  const std::optional<double> ms = dispatcher_.costs().ms(RunnerKind::kPrefill, size);
  return ms && cuts * kMostCutMs > (kFullMargin - 1) * *ms;
}

Status FullMeasurement::work() {
  if (at_->ratios.empty()) TRY(begin(at_->size));
  if (!at_) return ok_status();
  TRY(measure_pairs());
  if (at_->ratios.size() < kFullPairs) return ok_status();
  return decide({.ratio = median_bound(at_->ratios), .equal = true});
}

// Captures the size's full graph and compares its results, bit for bit, with those of the pieces. If the results are
// equal, measure_pairs() times both forms later. Otherwise the size stays in pieces. The results differ if a kernel
// computes differently inside the larger graph, or if the pieces are not deterministic. A second run of the pieces
// tells these two cases apart.
Status FullMeasurement::begin(std::int64_t size) {
  TRY(captures_.add_full(size));
  const std::vector<std::byte> pieces = TRY(output_of(size, GraphForm::kPieces));
  if (TRY(output_of(size, GraphForm::kFull)) == pieces) return ok_status();
  const bool steady = TRY(output_of(size, GraphForm::kPieces)) == pieces;
  log_warn("dispatch", "prefill size {} stays in pieces: {}", size,
           steady ? "the full graph's results differ from those of the pieces"
                  : "the results of the pieces differ from run to run, so a full graph cannot be compared with them");
  return decide({.ratio = 1, .equal = false});
}

Result<std::vector<std::byte>> FullMeasurement::output_of(std::int64_t size, GraphForm form) {
  TRY(parts_.together({.kind = RankOrderKind::kStagePages, .size = size}, [&] { return launcher_.stage_pages(size); }));
  TRY(parts_.together({.kind = RankOrderKind::kReplay, .size = size, .form = form},
                      [&] { return runner().replay(size, form); }));
  const Executable& executable = runner().executable();
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < executable.graph().outputs.size(); ++i) {
    const OutputView output = TRY(executable.output(runner().bucket(size), i));
    const std::size_t before = bytes.size();
    bytes.resize(before + static_cast<std::size_t>(output.bytes()));
    TRY(parts_.stream().download(bytes.data() + before, output.data, static_cast<std::size_t>(output.bytes())));
    TRY(parts_.stream().synchronize());  // the download must finish before the vector moves
  }
  return bytes;
}

// Times pairs of replays with the host's clock. The device is idle before each replay, so a replay's time is the time
// that a prompt waits for it.
Status FullMeasurement::measure_pairs() {
  constexpr double kMostMs = 30;  // the longest that a request may wait if it arrives during the measurement
  const std::int64_t size = at_->size;
  TRY(parts_.together({.kind = RankOrderKind::kStageDummy, .size = size},
                      [&] { return launcher_.stage_dummy(runner(), size); }));
  const auto replay_ms = [&](GraphForm form) -> Result<double> {
    double ms = 0;
    TRY(parts_.together({.kind = RankOrderKind::kReplay, .size = size, .form = form}, [&]() -> Status {
      TRY(parts_.stream().synchronize());
      const Clock::time_point start = Clock::now();
      TRY(runner().replay(size, form));
      TRY(parts_.stream().synchronize());
      ms = ms_since(start);
      return ok_status();
    }));
    return ms;
  };
  const Clock::time_point start = Clock::now();
  for (const GraphForm form : {GraphForm::kPieces, GraphForm::kFull}) TRY(replay_ms(form));
  do {
    const double pieces = TRY(replay_ms(GraphForm::kPieces));
    const double full = TRY(replay_ms(GraphForm::kFull));
    at_->ratios.push_back(full / pieces);
  } while (at_->ratios.size() < kFullPairs && ms_since(start) < kMostMs);
  return ok_status();
}

Status FullMeasurement::decide(FullCost cost) {
  const std::int64_t size = std::exchange(at_, std::nullopt)->size;
  dispatcher_.costs().add_full(size, cost);
  const bool wins = dispatcher_.costs().full_wins(size);
  log_debug("dispatch", "prefill size {} {}: one graph takes at most {:.3f} of the pieces' time", size,
            wins ? "is replayed as one graph" : "stays in pieces", cost.ratio);
  if (!wins) TRY(captures_.drop_full(size));
  dispatcher_.refresh();
  return ok_status();
}

}  // namespace tessera
