// What a runner does when there is nothing else to do: captures that were put off, and measuring what forwards cost.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/runner/capture_plan.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/model_runner.h"

namespace tessera {
namespace {

// A size that takes longer is the last of its kind: larger ones are extrapolated, so that requests need not wait for
// them.
constexpr double kMostMeasuredMs = 30;

}  // namespace

Status ModelRunner::capture_rest() {
  while (!to_come_.empty()) TRY(idle_work());
  // The order of requests is not that of a start: smaller sizes come before larger ones.
  for (const auto& [kind, sizes] :
       {std::pair(RunnerKind::kPrefill, table_.prefill_sizes), std::pair(RunnerKind::kDecode, table_.decode_sizes)}) {
    for (const std::int64_t size : sizes) {
      if (runner_of(kind).captured(size)) continue;
      const Status captured = runner_of(kind).capture_one(size);
      if (captured.code() == StatusCode::kDeviceLost) return captured;
    }
  }
  refresh_table();
  return ok_status();
}

Result<bool> ModelRunner::idle_work() {
  if (in_flight_ > 0) return internal_error("idle work is asked for while a forward is in flight");
  if (!to_come_.empty()) {
    const auto [kind, size] = to_come_.back();
    to_come_.pop_back();
    const Status captured = runner_of(kind).capture_one(size);
    if (captured.code() == StatusCode::kDeviceLost) return captured;
    refresh_table();
    return true;
  }
  return measure_next();
}

// Small sizes first: they tell how long the larger ones will take.
void ModelRunner::collect_unmeasured() {
  const auto add = [&](RunnerKind kind, std::int64_t size) {
    if (!measured_.contains({kind, size}) && size < measured_below_[static_cast<std::size_t>(kind)])
      to_measure_.emplace_back(kind, size);
  };
  for (const std::int64_t size : prefill_->report().captured) add(RunnerKind::kPrefill, size);
  // One token less than a captured size, so that binding, which most eager forwards need, is part of it.
  for (const std::int64_t size : eager_samples(prefill_->report().captured))
    if (size > 1) add(RunnerKind::kEager, size - 1);
  for (const std::int64_t size : decode_->report().captured) add(RunnerKind::kDecode, size);
  std::sort(to_measure_.begin(), to_measure_.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
}

Result<bool> ModelRunner::measure_next() {
  if (table_.costs == nullptr) return false;
  if (to_measure_.empty()) collect_unmeasured();
  while (!to_measure_.empty()) {
    const auto [kind, size] = to_measure_.back();
    to_measure_.pop_back();
    std::int64_t& below = measured_below_[static_cast<std::size_t>(kind)];
    if (size >= below || (kind != RunnerKind::kEager && !runner_of(kind).captured(size))) continue;
    const Result<double> ms = measure(kind, size);
    if (ms.status().code() == StatusCode::kDeviceLost) return ms.status();
    if (!ms.ok())
      log_warn("dispatch", "{} size {} is not measured: {}", runner_kind_name(kind), size, ms.status().to_string());
    measured_.emplace(kind, size);
    if (ms.ok()) costs_.add(kind, size, *ms);
    if (!ms.ok() || *ms > kMostMeasuredMs) below = size + (ms.ok() ? 1 : 0);
    return true;
  }
  return false;
}

// The fastest of a few, by the host's clock: what a forward takes that finds the device idle.
Result<double> ModelRunner::measure(RunnerKind kind, std::int64_t size) {
  constexpr int kRuns = 3;
  constexpr double kLongEnoughMs = 3;  // two runs that take so long are a measurement
  using Clock = std::chrono::steady_clock;
  const bool decode = kind == RunnerKind::kDecode;
  GraphRunner& runner = runner_of(kind);
  const ForwardBatch batch = dummy_batch(size, decode, options_, graphs_.body.cache_groups.size());
  if (batch.num_requests() > options_.max_requests)
    return resource_exhausted(fmt::format("{} requests would be needed", batch.num_requests()));
  TRY(stage(batch, decode ? BatchKind::kDecode : BatchKind::kExtend, size, TokenId(0)));
  if (decode) TRY(inputs_->stage_rows(std::span(in_order_).first(static_cast<std::size_t>(size)), {}, size, *stream_));
  TRY(stream_->synchronize());
  double best = 0;
  for (int run = 0; run < kRuns && (run < 2 ? best < kMostMeasuredMs : best < kLongEnoughMs); ++run) {
    const Clock::time_point start = Clock::now();
    if (kind == RunnerKind::kEager) TRY(runner.make_ready(size));
    TRY(kind == RunnerKind::kEager ? runner.run(size) : runner.replay(size));
    TRY(stream_->synchronize());
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    if (kind == RunnerKind::kEager && run + 1 < kRuns) runner.forget(size);
    best = run == 0 ? ms : std::min(best, ms);
  }
  return best;
}

}  // namespace tessera
