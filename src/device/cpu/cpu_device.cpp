#include "tessera/device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tessera/device/cpu/cpu_graph.h"
#include "tessera/device/cpu/cpu_memory.h"
#include "tessera/device/cpu/host_limits.h"
#include "tessera/device/cpu/parallel.h"

namespace tessera {

Result<DeviceProperties> CpuDevice::read_properties(Options options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid_argument(fmt::format("{} threads for the CPU device: give 1 to {}, or 0 for one per usable core",
                                        options.threads, kMaxThreads));
  }
  const HostCpu cpu = read_host_cpu();
  DeviceProperties properties;
  properties.kind = DeviceKind::kCpu;
  properties.memory_bytes = read_host_memory().total_bytes;
  properties.has_native_bf16 = cpu.has_native_bf16;
#ifdef _OPENMP
  properties.threads = options.threads > 0 ? options.threads : std::min(read_usable_cores(), kMaxThreads);
#else
  properties.threads = 1;
#endif
  properties.name = fmt::format("{}, {} thread{}{}{}", cpu.name, properties.threads, properties.threads == 1 ? "" : "s",
                                cpu.vector_extension.empty() ? "" : ", ", cpu.vector_extension);
  return properties;
}

Result<std::unique_ptr<CpuDevice>> CpuDevice::create(Options options) {
  DeviceProperties properties = TRY(read_properties(options));
  set_worker_threads(properties.threads);
  return std::unique_ptr<CpuDevice>(new CpuDevice(std::move(properties)));
}

Result<std::unique_ptr<Allocation>> CpuDevice::allocate(std::size_t bytes, std::string_view name) {
  TRY(enter(DeviceCall::kAllocate, name));
  TRY(claim(DeviceCall::kAllocate, name, bytes));
  Result<std::unique_ptr<CpuAllocation>> allocation = CpuAllocation::create(*this, bytes, name);
  if (!allocation.ok()) {
    give_back(bytes);
    return allocation.status();
  }
  return std::move(allocation).value();
}

Result<std::unique_ptr<Arena>> CpuDevice::create_arena(ArenaOptions options) {
  TRY(enter(DeviceCall::kCreateArena, options.name));
  return TRY(CpuArena::create(*this, std::move(options)));
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream(std::string name) {
  TRY(enter(DeviceCall::kCreateStream, name));
  return std::make_unique<CpuStream>(*this, std::move(name));
}

Result<std::unique_ptr<Event>> CpuDevice::create_event() {
  std::string name = fmt::format("event {}", ++events_);
  TRY(enter(DeviceCall::kCreateEvent, name));
  return std::make_unique<CpuEvent>(*this, std::move(name));
}

std::int64_t CpuDevice::available_bytes() const {
  const std::int64_t left = properties_.memory_bytes - used_bytes_;
  return std::clamp<std::int64_t>(read_host_memory().available_bytes, 0, std::max<std::int64_t>(left, 0));
}

Status CpuDevice::claim(DeviceCall call, std::string_view object, std::size_t bytes) {
  // Asking the system costs some 50 µs, and a small piece more or less decides nothing.
  constexpr std::size_t kAskSystemFrom = std::size_t{1} << 20;
  const bool absurd = bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  if (absurd || (bytes >= kAskSystemFrom && static_cast<std::int64_t>(bytes) > available_bytes())) {
    return out_of_device_memory(call, object, bytes, available_bytes());
  }
  const auto wanted = static_cast<std::int64_t>(bytes);
  std::int64_t used = used_bytes_;
  do {
    if (wanted > properties_.memory_bytes - used) return out_of_device_memory(call, object, bytes, available_bytes());
  } while (!used_bytes_.compare_exchange_weak(used, used + wanted));
  return ok_status();
}

Status CpuDevice::enter(DeviceCall call, std::string_view object) {
  if (!allowed_while_recording(call) && records_on_this_thread()) {
    std::lock_guard lock(recording_mutex_);
    return refused_while_recording(call, object, recording_what_);
  }
  return before(call, object);
}

bool CpuDevice::records_on_this_thread() const {
  if (recording_stream_.load(std::memory_order_relaxed) == nullptr) return false;
  std::lock_guard lock(recording_mutex_);
  return recording_stream_ != nullptr && recording_thread_ == std::this_thread::get_id();
}

Status CpuDevice::open_recording(const CpuStream& stream, const std::string& what) {
  std::lock_guard lock(recording_mutex_);
  if (recording_stream_ != nullptr) {
    return refused_while_recording(DeviceCall::kBeginRecording, what, recording_what_);
  }
  recording_stream_ = &stream;
  recording_thread_ = std::this_thread::get_id();
  recording_what_ = what;
  freed_while_recording_.clear();
  return ok_status();
}

Status CpuDevice::close_recording(const CpuStream& stream) {
  std::lock_guard lock(recording_mutex_);
  if (recording_stream_ != &stream) return ok_status();
  recording_stream_ = nullptr;
  if (recording_thread_ != std::this_thread::get_id()) {
    return failed_precondition(
        fmt::format("recording '{}' ended on another thread than it began on, and is dropped", recording_what_));
  }
  if (!freed_while_recording_.empty()) {
    return failed_precondition(
        fmt::format("recording '{}' is dropped: '{}' was freed while it was open, and a graph may hold its address",
                    recording_what_, freed_while_recording_));
  }
  return ok_status();
}

void CpuDevice::note_freed(std::string_view object) {
  if (!records_on_this_thread()) return;
  std::lock_guard lock(recording_mutex_);
  if (freed_while_recording_.empty()) freed_while_recording_ = object.empty() ? "(unnamed memory)" : object;
}

}  // namespace tessera
