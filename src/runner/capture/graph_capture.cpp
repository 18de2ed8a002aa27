#include "tessera/runner/capture/graph_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "tessera/base/log.h"
#include "tessera/runner/capture/capture_plan.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/memory/measure_memory.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/vision/vision_runner.h"

namespace tessera {
namespace {

// Returns the last part of a log line about captured sizes. This part says when the pending sizes will be captured.
std::string_view when_captured(const GraphRunner& runner, CaptureMode mode) {
  if (runner.pending().empty()) return "";
  switch (mode) {
    case CaptureMode::kEager: return "";
    case CaptureMode::kLazy: return " now, each when it is first wanted";
    case CaptureMode::kCore: return " now, the others in idle moments";
  }
  return "";
}

std::vector<const GraphRunner*> captured_runners(const RunnerParts& parts) {
  std::vector<const GraphRunner*> runners;
  for (const RunnerRole role : kCapturedRoles)
    if (const GraphRunner* runner = parts.find_runner(role); runner != nullptr) runners.push_back(runner);
  if (parts.vision() != nullptr) runners.push_back(&parts.vision()->runner());
  return runners;
}

}  // namespace

Status GraphCapture::start(StepResults& results, const std::function<bool()>& more) {
  const Timeline::Scope scope(parts_.model.options.start, "capture");
  TRY(parts_.together({.kind = RankOrderKind::kPrepare}, [&] { return prepare(results); }));
  if (!dispatcher_.table().graphs_enabled) {
    report_memory();
    return ok_status();
  }
  const auto left = [&] {
    return parts_.model.device.available_bytes() +
           static_cast<std::int64_t>(parts_.arena().size() + parts_.workspace().size());
  };
  const std::int64_t before = left();
  TRY(capture_graphs(more));
  measure_graphs(before - left());
  report_memory();
  return ok_status();
}

Status GraphCapture::prepare(StepResults& results) {
  dispatcher_.enable();
  if (parts_.model.options.memory_plan == MemoryPlanKind::kPlanned) TRY(reserve_memory());
  if (!dispatcher_.table().graphs_enabled) return ok_status();
  if (parts_.debug() != nullptr) parts_.debug()->pause();  // the weights may still be loading, so NaNs mean nothing yet
  const Status status = warm_up(results);
  if (parts_.debug() != nullptr) parts_.debug()->resume();
  return status.with_context("warming up");
}

// Computes graph_bytes_of_estimate_. `bytes` is the device memory that the captures took.
void GraphCapture::measure_graphs(std::int64_t bytes) {
  std::int64_t estimate = 0;
  for (const GraphRunner* runner : captured_runners(parts_))
    estimate += runner_memory(*runner, parts_.model.device.properties(), 1).graph_bytes();
  if (estimate == 0) return;
  graph_bytes_of_estimate_ = static_cast<double>(std::max<std::int64_t>(bytes, 0)) / static_cast<double>(estimate);
}

void GraphCapture::report_memory() {
  available_ = parts_.model.device.available_bytes();
  log_info("memory", "{}",
           memory_line(measure_memory(parts_, graph_bytes_of_estimate_, available_), parts_.predicted()));
  const std::int64_t low = memory_reserve(parts_.model.device.properties()) / 2;
  const std::int64_t pending = predicted_pending_bytes();
  if (available_ - pending >= low) return;
  log_warn("memory",
           "only {:.2f} GB of the device's memory are left{}, less than the recommended {:.2f} GB: later allocations "
           "may fail; lower mem_fraction_static (0.8, 0.7) or max_total_tokens",
           static_cast<double>(std::max<std::int64_t>(available_ - pending, 0)) / 1e9,
           pending == 0 ? "" : " once all sizes are captured", static_cast<double>(low) / 1e9);
}

std::int64_t GraphCapture::predicted_pending_bytes() const {
  std::int64_t bytes = 0;
  for (const GraphRunner* runner : captured_runners(parts_)) {
    const std::vector<std::int64_t> pending = runner->pending();
    const RunnerMemory* predicted = parts_.predicted().runner(runner->spec().role);
    if (predicted == nullptr) continue;
    for (const SizeMemory& size : predicted->sizes)
      if (std::ranges::binary_search(pending, size.size)) bytes += size.graphs.bytes;
  }
  return bytes;
}

// Allocates the memory of the largest forwards, so that a lack of memory makes the start fail and not a request.
// Forwards of every size must be able to run, with graphs or without.
Status GraphCapture::reserve_memory() {
  const std::int64_t arena = parts_.predicted()[MemoryUse::kArena];
  const std::int64_t workspace = parts_.predicted()[MemoryUse::kWorkspace];
  Status taken = parts_.arena().grow(static_cast<std::size_t>(arena));
  if (taken.ok()) taken = parts_.workspace().grow(static_cast<std::size_t>(workspace));
  if (taken.ok()) return taken;
  return std::move(taken).with_context(
      fmt::format("forwards of up to {} tokens need an arena of {} bytes and a workspace of {}; lower "
                  "chunked_prefill_size (1024), mem_fraction_static (0.8, 0.7), max_running_requests (256) or "
                  "cuda_graph_max_bs (16)",
                  max_padded_tokens(parts_.model.options), arena, workspace));
}

// Runs every operator once, at the smallest size, on the reserved page. Kernels that only larger sizes use run for the
// first time right before those sizes are captured.
Status GraphCapture::warm_up(StepResults& results) {
  const Timeline::Scope scope(parts_.model.options.start, "warm up");
  const ForwardBatch dummy = dummy_batch(1, /*decode=*/false, parts_.model.options,
                                         parts_.model.graphs.body.cache_groups, parts_.model.vocab_size);
  const SampleRow row;
  const TokenId target(0);
  const LogitEdits edits{
      .starts = {0, 1}, .ids = {target}, .penalties = {1}, .offsets = {0}, .masked_rows = {}, .masks = {}};
  const ForwardInputs inputs{.batch = dummy,
                             .sampling = std::span(&row, 1),
                             .edits = &edits,
                             .logprob_targets = std::span(&target, 1),
                             .top_logprobs = 1,
                             .force_eager = true};
  TRY(step_.run(inputs, {.runner = RunnerKind::kEager, .size = 1}, results.begin(0, inputs)));
  if (parts_.memory().adapters != nullptr)
    TRY(step_.run(inputs, {.runner = RunnerKind::kEager, .size = 1, .adapters = true}, results.begin(0, inputs)));
  return parts_.stream().synchronize();
}

Status GraphCapture::capture_graphs(const std::function<bool()>& more) {
  GraphRunner& prefill = parts_.runner(RunnerRole::kPrefill);
  GraphRunner& decode = parts_.runner(RunnerRole::kDecode);
  if (prefill.spec().captured && !prefill.spec().ladder.empty()) {
    log_info("capture", "Capture piecewise CUDA graph begin. {} sizes up to {} tokens", prefill.spec().ladder.size(),
             prefill.spec().ladder.back());
    TRY(capture_sizes(prefill));
    for (const std::int64_t size : prefill.report().captured) TRY(dispatcher_.capture_full(size));
    const std::size_t full = prefill.report().full.size();
    log_info("capture", "Capture piecewise CUDA graph end. {} sizes{}{}, {:.2f} s, arena {:.3f} GB",
             prefill.report().captured.size(), when_captured(prefill, parts_.model.options.capture),
             full == 0 ? "" : fmt::format(", {} of them as one graph too", full), prefill.report().seconds,
             static_cast<double>(parts_.arena().size()) / 1e9);
  }
  if (decode.spec().captured && !decode.spec().ladder.empty()) {
    TRY(capture_sizes(decode));
    log_info("capture", "Captured decode graphs for {} batch sizes{}, {:.2f} s", decode.report().captured.size(),
             when_captured(decode, parts_.model.options.capture), decode.report().seconds);
  }
  for (const RunnerRole role : {RunnerRole::kAdapterPrefill, RunnerRole::kAdapterDecode, RunnerRole::kDraftDecode}) {
    GraphRunner* const runner = parts_.find_runner(role);
    if (runner == nullptr || !runner->spec().captured || runner->spec().ladder.empty()) continue;
    TRY(capture_sizes(*runner));
    log_info("capture", "Captured {} graphs for {} sizes{}, {:.2f} s", runner->name(), runner->report().captured.size(),
             when_captured(*runner, parts_.model.options.capture), runner->report().seconds);
  }
  if (parts_.vision() != nullptr)
    TRY(parts_.together({.kind = RankOrderKind::kCaptureTower, .size = kTowersStart},
                        [&] { return capture_start_budgets(parts_); }));
  dispatcher_.refresh();
  if (parts_.model.options.capture == CaptureMode::kCore) {
    while (more && more() && TRY(capture_next())) {
    }
  }
  return ok_status();
}

Status GraphCapture::capture_start_budgets(RunnerParts& parts) {
  if (parts.vision() == nullptr || parts.model.options.capture == CaptureMode::kLazy) return ok_status();
  const GraphRunner& tower = parts.vision()->runner();
  if (!tower.spec().captured) return ok_status();
  const std::vector<std::int64_t>& ladder = tower.spec().ladder;
  TRY(parts.vision()->capture(parts.model.options.capture == CaptureMode::kCore ? core_sizes(ladder) : ladder));
  log_info("capture", "Captured the vision tower's graphs for {} budgets of up to {} patches{}, {:.2f} s",
           tower.report().captured.size(), ladder.back(), when_captured(tower, parts.model.options.capture),
           tower.report().seconds);
  return ok_status();
}

Status GraphCapture::capture_sizes(GraphRunner& runner) {
  const CaptureMode mode = parts_.model.options.capture;
  if (mode == CaptureMode::kLazy) return ok_status();
  const std::vector<std::int64_t>& ladder = runner.spec().ladder;
  return captures_.capture(runner, mode == CaptureMode::kCore ? core_sizes(ladder) : ladder);
}

Result<bool> GraphCapture::capture_next() {
  if (parts_.vision() != nullptr && parts_.vision()->has_wanted()) return capture_tower();
  for (const RunnerRole role : {RunnerRole::kDecode, RunnerRole::kDraftDecode, RunnerRole::kPrefill,
                                RunnerRole::kAdapterDecode, RunnerRole::kAdapterPrefill}) {
    if (parts_.find_runner(role) == nullptr) continue;
    GraphRunner& runner = parts_.runner(role);
    const std::vector<std::int64_t> pending = runner.pending();
    if (pending.empty()) continue;
    const Status captured = captures_.capture(runner, pending.front());
    if (captured.code() == StatusCode::kDeviceLost) return captured;
    if (role == RunnerRole::kPrefill) TRY(dispatcher_.capture_full(pending.front()));
    dispatcher_.refresh();
    return true;
  }
  return parts_.vision() != nullptr && TRY(capture_tower());
}

Result<bool> GraphCapture::capture_tower() {
  bool left = false;
  TRY(parts_.together({.kind = RankOrderKind::kCaptureTower}, [&]() -> Status {
    left = TRY(parts_.vision()->capture_next());
    return ok_status();
  }));
  return left;
}

bool GraphCapture::has_pending() const {
  return std::ranges::any_of(captured_runners(parts_),
                             [](const GraphRunner* runner) { return !runner->pending().empty(); });
}

Status GraphCapture::capture_rest() {
  while (TRY(capture_next())) {
  }
  return ok_status();
}

}  // namespace tessera
