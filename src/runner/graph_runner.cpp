#include "tessera/runner/graph_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tessera/base/log.h"
#include "tessera/base/progress.h"

namespace tessera {

Status GraphRunner::capture(std::span<const std::int64_t> sizes, bool show_progress) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::int64_t size : sizes) {
    const MemoryNeed need = TRY(executable_->memory_need(bucket(size)));
    report_.predicted.arena_bytes = std::max(report_.predicted.arena_bytes, need.arena_bytes);
    report_.predicted.lower_bound_bytes = std::max(report_.predicted.lower_bound_bytes, need.lower_bound_bytes);
    report_.predicted.unshared_bytes = std::max(report_.predicted.unshared_bytes, need.unshared_bytes);
    report_.predicted.workspace_bytes = std::max(report_.predicted.workspace_bytes, need.workspace_bytes);
  }

  Progress progress(fmt::format("Capturing {} graphs", name_), static_cast<std::int64_t>(sizes.size()), "sizes",
                    show_progress);
  std::vector<std::int64_t> descending(sizes.begin(), sizes.end());
  std::sort(descending.rbegin(), descending.rend());
  for (const std::int64_t size : descending) {
    Status status = executable_->bind(bucket(size));
    if (status.ok()) status = executable_->capture(bucket(size));
    if (status.ok()) {
      std::erase(uncaptured_, size);
      report_.captured.push_back(size);
    } else {
      if (status.code() == StatusCode::kDeviceLost) return status;
      log_warn("capture", "{} size {} is dropped: {}", name_, size, status.to_string());
      executable_->drop(bucket(size));
      report_.dropped.emplace_back(size, std::move(status));
    }
    progress.advance(1);
  }
  std::reverse(report_.captured.begin(), report_.captured.end());
  report_.graphs = executable_->graph_stats();
  report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ok_status();
}

Status GraphRunner::make_ready(std::int64_t size) {
  if (executable_->captured(bucket(size))) return ok_status();
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

}  // namespace tessera
