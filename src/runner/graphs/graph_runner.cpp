#include "tessera/runner/graphs/graph_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/base/progress.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {

std::int64_t GraphRunner::padded_size(std::int64_t rows) const {
  return round_up(spec_.ladder, rows).value_or(spec_.ladder.back());
}

bool GraphRunner::captured(std::int64_t size) const { return std::ranges::binary_search(report_.captured, size); }

bool GraphRunner::dropped(std::int64_t size) const {
  return std::ranges::any_of(report_.dropped, [&](const auto& entry) { return entry.first == size; });
}

std::vector<std::int64_t> GraphRunner::pending() const {
  std::vector<std::int64_t> sizes;
  if (!spec_.captured) return sizes;
  for (const std::int64_t size : spec_.ladder)
    if (!captured(size) && !dropped(size)) sizes.push_back(size);
  return sizes;
}

Status GraphRunner::capture_each(std::span<const std::int64_t> sizes, bool show_progress,
                                 const std::function<Status(std::int64_t size)>& capture) const {
  Progress progress(fmt::format("Capturing {} graphs", name()), static_cast<std::int64_t>(sizes.size()), "sizes",
                    show_progress);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    const Status status = capture(sizes[i]);
    if (status.code() == StatusCode::kDeviceLost) return status;
    progress.advance(1);
  }
  return ok_status();
}

Status GraphRunner::bind_and_capture(std::int64_t size, const StageSize& stage) {
  const ir::Bucket at = bucket(size);
  TRY(executable_->bind(at));
  if (TRY(executable_->has_cold_kernels(at))) {
    TRY(stage(size).with_context("staging a warm-up"));
    TRY(executable_->warm_up(at));
  }
  return executable_->capture(at);
}

Status GraphRunner::capture_one(std::int64_t size, const StageSize& stage) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = bind_and_capture(size, stage);
  std::erase(uncaptured_, size);
  report_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!status.ok()) {
    if (status.code() != StatusCode::kDeviceLost) drop(size, status);
    return status;
  }
  report_.captured.insert(std::lower_bound(report_.captured.begin(), report_.captured.end(), size), size);
  report_.graphs = executable_->graph_stats();
  return status;
}

bool GraphRunner::has_full(std::int64_t size) const { return std::ranges::binary_search(report_.full, size); }

Status GraphRunner::capture_full(std::int64_t size) {
  if (has_full(size)) return ok_status();
  const auto start = std::chrono::steady_clock::now();
  Status status = executable_->capture_full(bucket(size));
  report_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TRY(std::move(status));
  report_.full.insert(std::lower_bound(report_.full.begin(), report_.full.end(), size), size);
  report_.graphs = executable_->graph_stats();
  return ok_status();
}

void GraphRunner::drop_full(std::int64_t size) {
  if (std::erase(report_.full, size) == 0) return;
  executable_->drop_full_graph(bucket(size));
  report_.graphs = executable_->graph_stats();
}

void GraphRunner::drop(std::int64_t size, Status why) {
  log_warn("capture", "{} size {} is dropped: {}", name(), size, why.to_string());
  executable_->drop(bucket(size));
  std::erase(report_.captured, size);
  std::erase(report_.full, size);
  report_.dropped.emplace_back(size, std::move(why));
  report_.graphs = executable_->graph_stats();
}

Status GraphRunner::make_ready(std::int64_t size) {
  if (captured(size)) return ok_status();
  const auto known = std::find(uncaptured_.begin(), uncaptured_.end(), size);
  if (known != uncaptured_.end()) {
    std::rotate(known, known + 1, uncaptured_.end());
    return ok_status();
  }
  TRY(executable_->bind(bucket(size)));
  uncaptured_.push_back(size);
  if (uncaptured_.size() > kMaxUncaptured) {
    executable_->drop(bucket(uncaptured_.front()));
    uncaptured_.erase(uncaptured_.begin());
  }
  return ok_status();
}

void GraphRunner::forget(std::int64_t size) {
  if (std::erase(uncaptured_, size) > 0) executable_->drop(bucket(size));
}

}  // namespace tessera
