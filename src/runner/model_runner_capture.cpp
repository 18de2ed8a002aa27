// The start of a runner: warming up, reserving memory, capturing.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/log.h"
#include "tessera/runner/capture_plan.h"
#include "tessera/runner/dummy_batch.h"
#include "tessera/runner/executables.h"
#include "tessera/runner/model_runner.h"

namespace tessera {

Status ModelRunner::capture() {
  const GraphSwitches& on = options_.graphs;
  table_ = {.graphs_enabled = on.prefill || on.decode,
            .prefill_enabled = on.prefill,
            .decode_enabled = on.decode,
            .decode_padding = options_.decode_padding,
            .prefill_sizes = {},
            .decode_sizes = {},
            .costs = measures_costs() ? &costs_ : nullptr};
  if (options_.memory_plan == MemoryPlanKind::kPlanned) TRY(reserve_memory());
  if (!table_.graphs_enabled) {
    tell_memory();
    return ok_status();
  }
  if (debug_ != nullptr) debug_->pause();  // the weights may still be on their way
  TRY(warm_up().with_context("warming up"));
  if (debug_ != nullptr) debug_->resume();
  const auto left = [&] {
    return device_.available_bytes() + static_cast<std::int64_t>(arena_->size() + workspace_->size());
  };
  const std::int64_t before = left();
  TRY(capture_graphs(on));
  measure_graphs(before - left());
  tell_memory();
  return ok_status();
}

// `bytes`: by the memory that captures left.
void ModelRunner::measure_graphs(std::int64_t bytes) {
  std::int64_t estimate = 0;
  for (const GraphRunner* runner : {prefill_.get(), decode_.get()})
    estimate += runner_memory(*runner, device_.properties(), 1).graph_bytes();
  if (estimate == 0) return;
  graph_bytes_of_estimate_ = static_cast<double>(std::max<std::int64_t>(bytes, 0)) / static_cast<double>(estimate);
}

void ModelRunner::tell_memory() {
  available_ = device_.available_bytes();
  log_info("memory", "{}", memory_line(memory()));
  const std::int64_t low = memory_reserve(device_.properties()) / 2;
  if (available_ >= low) return;
  log_warn("memory",
           "only {:.2f} GB of the device's memory are left, less than the {:.2f} GB that should be: what is loaded "
           "later may fail; lower --mem-fraction-static (0.8, 0.7) or --max-total-tokens",
           static_cast<double>(available_) / 1e9, static_cast<double>(low) / 1e9);
}

// Forwards of every size must run, with graphs or without: what the largest ones need is taken now, so that want of
// memory is told at the start and not to a request.
Status ModelRunner::reserve_memory() {
  Status taken = arena_->grow(static_cast<std::size_t>(predicted_.arena));
  if (taken.ok()) taken = workspace_->grow(static_cast<std::size_t>(predicted_.workspace));
  if (taken.ok()) return taken;
  return std::move(taken).with_context(
      fmt::format("forwards of up to {} tokens need an arena of {} bytes and a workspace of {}; lower "
                  "--chunked-prefill-size (1024), --mem-fraction-static (0.8, 0.7) or --cuda-graph-max-bs (16)",
                  max_padded_tokens(options_), predicted_.arena, predicted_.workspace));
}

Status ModelRunner::capture_graphs(const GraphSwitches& on) {
  const char* const when = options_.capture == CaptureMode::kLazy   ? " now, each when it is first wanted"
                           : options_.capture == CaptureMode::kCore ? " now, the others in idle moments"
                                                                    : "";
  if (on.prefill && !options_.prefill_sizes.empty()) {
    log_info("capture", "Capture piecewise CUDA graph begin. {} sizes up to {} tokens", options_.prefill_sizes.size(),
             options_.prefill_sizes.back());
    TRY(capture_sizes(*prefill_, options_.prefill_sizes));
    const CaptureReport& report = prefill_->report();
    log_info("capture", "Capture piecewise CUDA graph end. {} sizes{}, {:.2f} s, arena {:.3f} GB",
             report.captured.size(), when, report.seconds, static_cast<double>(arena_->size()) / 1e9);
  }
  if (on.decode && !options_.decode_sizes.empty()) {
    TRY(capture_sizes(*decode_, options_.decode_sizes));
    log_info("capture", "Captured decode graphs for {} batch sizes, {:.2f} s", decode_->report().captured.size(),
             decode_->report().seconds);
  }
  if (options_.capture == CaptureMode::kCore) {
    // Small sizes are used most and taken from the back.
    for (const auto& [kind, ladder] : {std::pair(RunnerKind::kPrefill, &options_.prefill_sizes),
                                       std::pair(RunnerKind::kDecode, &options_.decode_sizes)}) {
      const bool enabled = kind == RunnerKind::kPrefill ? on.prefill : on.decode;
      const std::vector<std::int64_t> core = core_sizes(*ladder);
      for (std::size_t i = ladder->size(); enabled && i-- > 0;)
        if (!std::binary_search(core.begin(), core.end(), (*ladder)[i])) to_come_.emplace_back(kind, (*ladder)[i]);
    }
  }
  refresh_table();
  return ok_status();
}

Status ModelRunner::capture_sizes(GraphRunner& runner, std::span<const std::int64_t> ladder) {
  if (options_.capture == CaptureMode::kLazy) return ok_status();
  const std::vector<std::int64_t> core = core_sizes(ladder);
  const char* const rows = &runner == decode_.get() ? "batch size (batch_size" : "num tokens (num_tokens";
  const auto before_each = [&](std::int64_t size) -> Status {
    if (log_enabled("capture", LogLevel::kDebug)) {  // or the driver is asked for nothing
      log_debug("capture", "Capturing {}={} avail_mem={:.2f} GB)", rows, size,
                static_cast<double>(device_.available_bytes()) / 1e9);
    }
    return options_.trim_between_captures ? device_.trim() : ok_status();
  };
  return runner.capture(options_.capture == CaptureMode::kCore ? core : ladder,
                        {.show_progress = options_.show_progress, .before_each = before_each});
}

void ModelRunner::refresh_table() {
  // Lazily captured sizes are dispatched to before they are there; those that failed are not.
  const auto sizes = [&](bool enabled, const GraphRunner& runner, const std::vector<std::int64_t>& ladder) {
    if (!enabled) return std::vector<std::int64_t>();
    if (options_.capture != CaptureMode::kLazy) return runner.report().captured;
    std::vector<std::int64_t> left = ladder;
    for (const auto& [size, why] : runner.report().dropped) std::erase(left, size);
    return left;
  };
  table_.prefill_sizes = sizes(table_.prefill_enabled, *prefill_, options_.prefill_sizes);
  table_.decode_sizes = sizes(table_.decode_enabled, *decode_, options_.decode_sizes);
  table_.prefill_to_come = table_.decode_to_come = 0;
  for (const auto& [kind, size] : to_come_) {
    std::int64_t& largest = kind == RunnerKind::kDecode ? table_.decode_to_come : table_.prefill_to_come;
    largest = std::max(largest, size);
  }
}

// Every kernel runs once, at the smallest size, on the reserved page (F1: dummy batch).
Status ModelRunner::warm_up() {
  ForwardBatch dummy = dummy_batch(1, /*decode=*/false, options_, graphs_.body.cache_groups.size());
  dummy.wanted_rows = {0};
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
  TRY(run_body(inputs, {.runner = RunnerKind::kEager, .size = 1}));
  TRY(run_head(inputs, results_->begin(0, inputs)));
  return stream_->synchronize();
}

}  // namespace tessera
