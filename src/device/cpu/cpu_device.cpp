#include "tessera/device/cpu/cpu_device.h"

#include <unistd.h>

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
  const HostMemory memory = read_host_memory();
  properties.memory_bytes = memory.total_bytes;
  properties.arenas_grow = !memory.mapped_counts;
  properties.has_native_bf16 = cpu.has_native_bf16;
  properties.block_bytes = sysconf(_SC_PAGESIZE);
  properties.graph_bytes = sizeof(CpuGraph);
  properties.graph_node_bytes = sizeof(CpuLaunch);
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

Result<std::unique_ptr<HostAllocation>> CpuDevice::allocate_host(std::size_t bytes, std::string_view name) {
  return std::make_unique<CpuHostAllocation>(TRY(allocate(bytes, name)));
}

Result<std::unique_ptr<Stream>> CpuDevice::create_stream(std::string name) {
  TRY(enter(DeviceCall::kCreateStream, name));
  return std::make_unique<CpuStream>(*this, std::move(name));
}

Result<std::unique_ptr<Event>> CpuDevice::create_event(EventKind kind) {
  std::string name = fmt::format("event {}", ++events_);
  TRY(enter(DeviceCall::kCreateEvent, name));
  return std::make_unique<CpuEvent>(*this, std::move(name), kind);
}

std::int64_t CpuDevice::available_bytes() const {
  const std::int64_t left = properties_.memory_bytes - used_bytes_;
  return std::clamp<std::int64_t>(read_host_memory().available_bytes, 0, std::max<std::int64_t>(left, 0));
}

Status CpuDevice::claim(DeviceCall call, std::string_view object, std::size_t bytes) {
  // The free memory of the system is checked only for allocations of at least this size, because the check takes about
  // 50 µs.
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
  TRY(recording_.check(call, object));
  return before(call, object);
}

}  // namespace tessera
