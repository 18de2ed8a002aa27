#include "tessera/runner/cost_measurement.h"

#include <algorithm>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/runner/capture_plan.h"

namespace tessera {
namespace {

// A size that takes longer is the last of its kind: larger ones are extrapolated, so that requests need not wait for
// them.
constexpr double kMostMeasuredMs = 30;

}  // namespace

// Small sizes first: they say how long the larger ones will take.
void CostMeasurement::collect() {
  const auto add = [&](RunnerKind kind, std::int64_t size) {
    if (!measured_.contains({kind, size}) && size < measured_below_[static_cast<std::size_t>(kind)])
      to_measure_.emplace_back(kind, size);
  };
  const std::vector<std::int64_t>& prefill = parts_.runner(RunnerRole::kPrefill).report().captured;
  for (const std::int64_t size : prefill) add(RunnerKind::kPrefill, size);
  // One token less than a captured size, so that binding, which most eager forwards need, is part of it.
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

// The fastest of a few, by the host's clock: what a forward takes that finds the device idle.
Result<double> CostMeasurement::measure(RunnerKind kind, std::int64_t size) {
  constexpr int kRuns = 3;
  constexpr double kLongEnoughMs = 3;  // two runs that take so long are a measurement
  using Clock = std::chrono::steady_clock;
  GraphRunner& runner = dispatcher_.runner_of(kind);
  TRY(parts_.stage_dummy(runner, size));
  TRY(parts_.stream->synchronize());
  double best = 0;
  for (int run = 0; run < kRuns && (run < 2 ? best < kMostMeasuredMs : best < kLongEnoughMs); ++run) {
    const Clock::time_point start = Clock::now();
    if (kind == RunnerKind::kEager) TRY(runner.make_ready(size));
    TRY(kind == RunnerKind::kEager ? runner.run(size) : runner.replay(size));
    TRY(parts_.stream->synchronize());
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (kind == RunnerKind::kEager && run + 1 < kRuns) runner.forget(size);
    best = run == 0 ? ms : std::min(best, ms);
  }
  return best;
}

}  // namespace tessera
