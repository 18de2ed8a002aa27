#include "tessera/runner/capture/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/runner/memory/measure_memory.h"

namespace tessera {

Dispatcher::Dispatcher(RunnerParts& parts, SizeCapture& captures) : parts_(parts), captures_(captures) {
  table_.graphs_enabled = false;
}

void Dispatcher::enable() {
  const GraphSwitches& on = parts_.model.options.graphs;
  table_ = {.graphs_enabled = on.prefill || on.decode,
            .prefill_enabled = on.prefill,
            .decode_enabled = on.decode,
            .decode_padding = parts_.model.options.decode_padding,
            .prefill_sizes = {},
            .decode_sizes = {},
            .costs = measures_costs() ? &costs_ : nullptr};
}

void Dispatcher::refresh() {
  // Dispatch may also choose pending sizes, which are then captured on first use.
  const auto sizes_of = [&](RunnerRole role) {
    if (parts_.find_runner(role) == nullptr) return std::vector<std::int64_t>();
    const GraphRunner& runner = parts_.runner(role);
    if (!runner.spec().captured) return std::vector<std::int64_t>();
    std::vector<std::int64_t> sizes = runner.report().captured;
    if (parts_.model.options.capture == CaptureMode::kEager) return sizes;
    const std::vector<std::int64_t> pending = runner.pending();
    sizes.insert(sizes.end(), pending.begin(), pending.end());
    std::ranges::sort(sizes);
    return sizes;
  };
  table_.prefill_sizes = sizes_of(RunnerRole::kPrefill);
  table_.waiting.clear();
  if (parts_.model.options.capture == CaptureMode::kCore)
    table_.waiting = parts_.runner(RunnerRole::kPrefill).pending();
  table_.decode_sizes = sizes_of(RunnerRole::kDecode);
  table_.adapter_prefill_sizes = sizes_of(RunnerRole::kAdapterPrefill);
  table_.adapter_decode_sizes = sizes_of(RunnerRole::kAdapterDecode);
  table_.full_sizes = parts_.runner(RunnerRole::kPrefill).report().full;
  std::erase_if(table_.full_sizes, [&](std::int64_t size) { return !costs_.full_wins(size); });
}

bool Dispatcher::chooses_full() const {
  return table_.costs != nullptr && parts_.model.options.choose_full && table_.prefill_enabled &&
         parts_.runner(RunnerRole::kPrefill).executable().can_be_full();
}

bool Dispatcher::has_memory_for_full() const {
  return parts_.available_bytes() >= memory_reserve(parts_.model.device.properties()) / 2;
}

Status Dispatcher::capture_full(std::int64_t size) {
  GraphRunner& runner = parts_.runner(RunnerRole::kPrefill);
  if (!chooses_full() || !runner.captured(size) || !costs_.full_wins(size) || !has_memory_for_full())
    return ok_status();
  const Status captured = captures_.add_full(size);
  if (captured.code() == StatusCode::kDeviceLost) return captured;
  if (!captured.ok())
    log_warn("capture", "prefill size {} stays in pieces, although one graph was faster: {}", size,
             captured.to_string());
  return ok_status();
}

std::optional<Decision> Dispatcher::wait_padded(const BatchShape& batch, const Decision& wanted) {
  // If a larger captured size needs at most kMostRows padding rows, the forward is padded to that size, and the size of
  // the forward itself is not captured yet. After kMostWaits padded forwards of one size, this size is captured. On an
  // H200 a capture takes 4 to 10 ms. kMostRows padding rows add 6 ms to a prefill of a model with 8 billion parameters,
  // and 0.5 ms to a prefill of one with 0.6 billion. They add less to a decode.
  constexpr std::int64_t kMostRows = 256;
  constexpr int kMostWaits = 8;
  if (parts_.model.options.capture != CaptureMode::kCore) return std::nullopt;
  const SizeKey size = key_of(wanted);
  if (const auto waits = waits_.find(size); waits != waits_.end() && waits->second == kMostWaits) return std::nullopt;
  DispatchTable captured = table_;
  captured.prefill_sizes = parts_.runner(RunnerRole::kPrefill).report().captured;
  captured.decode_sizes = parts_.runner(RunnerRole::kDecode).report().captured;
  if (wanted.adapters) {
    captured.adapter_prefill_sizes = parts_.runner(RunnerRole::kAdapterPrefill).report().captured;
    captured.adapter_decode_sizes = parts_.runner(RunnerRole::kAdapterDecode).report().captured;
  }
  const Decision padded = dispatch(batch, captured);
  if (padded.runner != wanted.runner || padded.padding > kMostRows) return std::nullopt;
  ++waits_[size];
  return padded;
}

Result<Decision> Dispatcher::decide(const BatchShape& batch) {
  while (true) {
    const Decision decision = dispatch(batch, table_);
    if (decision.runner == RunnerKind::kEager) return decision;
    GraphRunner& runner = runner_of(decision.runner, decision.adapters);
    if (runner.captured(decision.size)) return decision;
    if (const std::optional<Decision> padded = wait_padded(batch, decision)) return *padded;
    const Status captured = captures_.capture(runner, decision.size);
    if (captured.code() == StatusCode::kDeviceLost) return captured;
    if (decision.runner == RunnerKind::kPrefill && !decision.adapters) TRY(capture_full(decision.size));
    refresh();
  }
}

void Dispatcher::log(const ForwardBatch& batch, const Decision& decision) {
  if (decision.runner != RunnerKind::kEager) {
    log_debug("dispatch", "{} tokens of {} requests: {} {}, padding {}: {}", batch.num_tokens(), batch.num_requests(),
              runner_kind_name(decision.runner), decision.size, decision.padding, reason_text(decision.reason));
    return;
  }
  const bool warn =
      is_fallback(decision.reason) && !std::exchange(warned_of_[static_cast<std::size_t>(decision.reason)], true);
  const LogLevel level = warn ? LogLevel::kWarn : LogLevel::kDebug;
  if (!log_enabled("dispatch", level)) return;
  log_line("dispatch", level,
           fmt::format("{} tokens of {} requests: fallback to eager: {}{}", batch.num_tokens(), batch.num_requests(),
                       reason_text(decision.reason),
                       warn ? " (further ones of this reason are logged at debug level)" : ""));
}

Status Dispatcher::ended(const Decision& decision, const ForwardEnd& end) {
  if (end.graph_failed()) return replay_failed(decision, end.status);
  if (end.status.ok()) failures_.forget(key_of(decision));
  return ok_status();
}

Status Dispatcher::replay_failed(const Decision& decision, const Status& why) {
  log_warn("dispatch", "the graph of a forward of {} rows failed{}: {}", decision.size,
           parts_.model.options.runs_alone() ? ", which is run again without it" : "", why.to_string());
  if (!failures_.add(key_of(decision))) return ok_status();
  if (decision.form == GraphForm::kFull) {
    log_warn("capture", "prefill size {} goes back to its pieces", decision.size);
    TRY(captures_.drop_full(decision.size));
  } else {
    TRY(captures_.drop(runner_of(decision.runner, decision.adapters), decision.size, why));
  }
  refresh();
  return ok_status();
}

}  // namespace tessera
