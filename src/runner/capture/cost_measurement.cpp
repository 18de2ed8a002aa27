#include "tessera/runner/capture/cost_measurement.h"

#include <algorithm>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/runner/capture/capture_plan.h"
#include "tessera/runner/ranks/rank_order.h"

namespace tessera {
namespace {

// If the measurement of a size takes longer than this, larger sizes of the same runner are not measured, because a
// request that arrives meanwhile would have to wait. Their costs are extrapolated.
constexpr double kMostMeasuredMs = 30;

}  // namespace

// Collects the sizes to measure. Small sizes are measured first, so the larger sizes of a runner can be skipped after a
// size that takes more than kMostMeasuredMs.
void CostMeasurement::collect() {
  const auto add = [&](RunnerKind kind, std::int64_t size) {
    if (!measured_.contains({kind, size}) && size < measured_below_[static_cast<std::size_t>(kind)])
      to_measure_.emplace_back(kind, size);
  };
  const std::vector<std::int64_t>& prefill = parts_.runner(RunnerRole::kPrefill).report().captured;
  for (const std::int64_t size : prefill) add(RunnerKind::kPrefill, size);
  // An eager run has one token less than a captured size, because operators are not bound for that token count yet.
  // Operators are not bound for most eager forwards either, so the measurement should include the time of binding.
  for (const std::int64_t size : eager_samples(prefill))
    if (size > 1) add(RunnerKind::kEager, size - 1);
  for (const std::int64_t size : parts_.runner(RunnerRole::kDecode).report().captured) add(RunnerKind::kDecode, size);
  std::sort(to_measure_.begin(), to_measure_.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
}

Result<bool> CostMeasurement::measure_next() {
  if (dispatcher_.table().costs == nullptr) return false;
  if (to_measure_.empty()) collect();
  while (!to_measure_.empty()) {
    const auto [kind, size] = to_measure_.back();
    to_measure_.pop_back();
    std::int64_t& below = measured_below_[static_cast<std::size_t>(kind)];
    if (size >= below || (kind != RunnerKind::kEager && !dispatcher_.runner_of(kind).captured(size))) continue;
    const Result<double> ms = measure(kind, size);
    if (ms.status().code() == StatusCode::kDeviceLost) return ms.status();
    if (!ms.ok())
      log_warn("dispatch", "{} size {} is not measured: {}", runner_kind_name(kind), size, ms.status().to_string());
    measured_.emplace(kind, size);
    if (ms.ok()) dispatcher_.costs().add(kind, size, *ms);
    if (!ms.ok() || *ms > kMostMeasuredMs) below = size + (ms.ok() ? 1 : 0);
    return true;
  }
  return false;
}

// Runs the forward a few times, each time on an idle device. Returns the shortest of the times, measured on the host.
Result<double> CostMeasurement::measure(RunnerKind kind, std::int64_t size) {
  constexpr int kRuns = 3;
  constexpr double kLongEnoughMs = 3;  // two runs suffice if the shorter one takes this long
  GraphRunner& runner = dispatcher_.runner_of(kind);
  const RunnerRole role = runner.spec().role;
  TRY(parts_.together({.kind = RankOrderKind::kStageDummy, .role = role, .size = size}, [&]() -> Status {
    TRY(launcher_.stage_dummy(runner, size));
    return parts_.stream().synchronize();
  }));
  double best = 0;
  for (int run = 0; run < kRuns && (run < 2 ? best < kMostMeasuredMs : best < kLongEnoughMs); ++run) {
    const double ms = TRY(kind == RunnerKind::kEager ? run_eagerly(runner, size) : replay(runner, size));
    if (kind == RunnerKind::kEager && run + 1 < kRuns) TRY(forget(runner, size));
    best = run == 0 ? ms : std::min(best, ms);
  }
  return best;
}

Result<double> CostMeasurement::run_eagerly(GraphRunner& runner, std::int64_t size) {
  return timed({.kind = RankOrderKind::kRunEagerly, .role = runner.spec().role, .size = size}, [&]() -> Status {
    TRY(runner.make_ready(size));
    return runner.run(size);
  });
}

Result<double> CostMeasurement::replay(GraphRunner& runner, std::int64_t size) {
  return timed({.kind = RankOrderKind::kReplay, .role = runner.spec().role, .size = size},
               [&] { return runner.replay(size); });
}

Status CostMeasurement::forget(GraphRunner& runner, std::int64_t size) {
  return parts_.together({.kind = RankOrderKind::kForget, .role = runner.spec().role, .size = size}, [&]() -> Status {
    runner.forget(size);
    return ok_status();
  });
}

// Returns the time of `run` in milliseconds. With several ranks it is rank 0's time. The other ranks take nearly the
// same time, because the ranks wait for one another in every layer.
Result<double> CostMeasurement::timed(const RankOrder& order, const std::function<Status()>& run) {
  using Clock = std::chrono::steady_clock;
  double ms = 0;
  TRY(parts_.together(order, [&]() -> Status {
    const Clock::time_point start = Clock::now();
    TRY(run());
    TRY(parts_.stream().synchronize());
    ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    return ok_status();
  }));
  return ms;
}

}  // namespace tessera
