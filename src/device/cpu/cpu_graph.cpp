#include "tessera/device/cpu/cpu_graph.h"

#include <fmt/format.h>

#include "tessera/device/cpu/parallel.h"

namespace tessera {

Status CpuEvent::synchronize() {
  TRY(device_.enter(DeviceCall::kSynchronizeEvent, name_));
  observe();
  return ok_status();
}

Result<double> CpuEvent::milliseconds_since(const Event& earlier) const {
  const auto& first = static_cast<const CpuEvent&>(earlier);
  const Clock::rep from = first.passed_.load(std::memory_order_acquire);
  const Clock::rep to = passed_.load(std::memory_order_acquire);
  const bool timed = kind_ == EventKind::kTime && first.kind_ == EventKind::kTime;
  if (!timed || from == 0 || to == 0) return event_without_time(name_);
  return std::chrono::duration<double, std::milli>(Clock::duration(to - from)).count();
}

Status CpuGraph::launch(Stream& stream) {
  auto* on = dynamic_cast<CpuStream*>(&stream);
  if (on == nullptr || &on->device_ != device_) return graph_of_another_device(name_);
  if (on->recording_) return refused_while_recording(DeviceCall::kReplay, name_, on->recording_what_);
  TRY(on->device_.enter(DeviceCall::kReplay, name_));
  if (on->device_.loses_replay()) [[unlikely]]
    return ok_status();
  set_worker_threads(on->device_.properties().threads);
  for (const CpuLaunch& launch : launches_) {
    Status status = launch.run();
    if (!status.ok()) [[unlikely]] {
      return std::move(status).with_context(fmt::format("replay of graph '{}', kernel '{}'", name_, launch.name()));
    }
  }
  return ok_status();
}

GraphStats CpuGraph::stats() const {
  return {.nodes = static_cast<std::int64_t>(launches_.size()),
          .bytes = static_cast<std::int64_t>(sizeof(*this) + launches_.capacity() * sizeof(CpuLaunch))};
}

}  // namespace tessera
