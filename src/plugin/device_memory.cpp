#include "tessera/plugin/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/host_limits.h"
#include "tessera/device/errors.h"
#include "tessera/plugin/c_call.h"

namespace tessera::plugin {
namespace {

std::string context(DeviceCall what, std::string_view name) {
  return fmt::format("{} '{}'", device_call_name(what), name);
}

// Returns the error that says that the plugin refused to allocate `bytes` bytes for `name`.
Status refused(PluginDevice& device, DeviceCall what, const std::string& name, std::size_t bytes, Status status) {
  if (status.code() != StatusCode::kResourceExhausted) return std::move(status).with_context(context(what, name));
  const Status usual = out_of_device_memory(what, name, bytes, device.available_bytes());
  return resource_exhausted(fmt::format("{}: {}", usual.message(), status.message()));
}

// Checks that memory from a plugin is not null and, if the device's handles are pointers, that it is aligned.
Status check_memory(const PluginDevice& device, const void* handle) {
  TRY(check_made(handle, "handle"));
  if (device.properties().has_pointers && reinterpret_cast<std::uintptr_t>(handle) % kDeviceAlignment != 0)
    return internal_error(fmt::format("the plugin gave {}, which is no multiple of {}", handle, kDeviceAlignment));
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<PluginAllocation>> PluginAllocation::create(PluginDevice& device, std::size_t bytes,
                                                                   std::string name) {
  std::unique_ptr<PluginAllocation> memory(new PluginAllocation(device, std::move(name)));
  if (bytes == 0) return memory;
  TRY(device.claim(DeviceCall::kAllocate, memory->name_, bytes));
  memory->size_ = bytes;
  void* handle = nullptr;
  Status status = call([&](tessera_plugin_error* error) {
    return device.table()->allocate(device.handle(), bytes, memory->name_.c_str(), &handle, error);
  });
  if (!status.ok()) return refused(device, DeviceCall::kAllocate, memory->name_, bytes, std::move(status));
  memory->data_ = static_cast<std::byte*>(handle);
  TRY(check_memory(device, handle).with_context(context(DeviceCall::kAllocate, memory->name_)));
  return memory;
}

PluginAllocation::~PluginAllocation() {
  device_.give_back(size_);
  if (data_ == nullptr) return;
  device_.recording().note_freed(name_);
  call_and_forget([this] { device_.table()->free_memory(device_.handle(), data_); });
}

Result<std::unique_ptr<PluginHostAllocation>> PluginHostAllocation::create(PluginDevice& device, std::size_t bytes,
                                                                           std::string name) {
  std::unique_ptr<PluginHostAllocation> memory(new PluginHostAllocation(device, std::move(name)));
  if (bytes == 0) return memory;
  void* data = nullptr;
  if (device.table()->allocate_host != nullptr) {
    Status status = call([&](tessera_plugin_error* error) {
      return device.table()->allocate_host(device.handle(), bytes, memory->name_.c_str(), &data, error);
    });
    if (!status.ok()) return refused(device, DeviceCall::kAllocate, memory->name_, bytes, std::move(status));
    TRY(check_made(data, "memory").with_context(context(DeviceCall::kAllocate, memory->name_)));
  } else {
    const std::int64_t available = read_host_memory().available_bytes;
    if (bytes <= static_cast<std::size_t>(available)) data = std::aligned_alloc(kDeviceAlignment, align_up(bytes));
    if (data == nullptr) return out_of_device_memory(DeviceCall::kAllocate, memory->name_, bytes, available);
  }
  memory->data_ = static_cast<std::byte*>(data);
  memory->size_ = bytes;
  return memory;
}

PluginHostAllocation::~PluginHostAllocation() {
  if (data_ == nullptr) return;
  device_.recording().note_freed(name_);
  if (device_.table()->free_host == nullptr) {
    std::free(data_);
  } else {
    call_and_forget([this] { device_.table()->free_host(device_.handle(), data_); });
  }
}

Result<std::unique_ptr<PluginArena>> PluginArena::create(PluginDevice& device, const ArenaOptions& options) {
  std::unique_ptr<PluginArena> arena(new PluginArena(device, options.name));
  const std::size_t block = static_cast<std::size_t>(device.properties().block_bytes);
  const std::size_t reserve = align_up(std::max<std::size_t>(options.reserve_bytes, 1), block);
  if (reserve < options.reserve_bytes) return out_of_addresses(options.name, options.reserve_bytes);
  if (!device.properties().arenas_grow) {
    TRY(device.claim(DeviceCall::kCreateArena, options.name, reserve));
    arena->claimed_ = reserve;
  }
  void* handle = nullptr;
  Status status = call([&](tessera_plugin_error* error) {
    return device.table()->create_arena(device.handle(), reserve, arena->name_.c_str(), &arena->arena_, &handle, error);
  });
  if (!status.ok()) return refused(device, DeviceCall::kCreateArena, arena->name_, reserve, std::move(status));
  TRY(check_made(arena->arena_, "arena").with_context(context(DeviceCall::kCreateArena, arena->name_)));
  arena->made_ = true;
  arena->base_ = static_cast<std::byte*>(handle);
  TRY(check_memory(device, handle).with_context(context(DeviceCall::kCreateArena, arena->name_)));
  arena->reserved_ = options.reserve_bytes;
  if (!device.properties().arenas_grow) arena->size_ = options.reserve_bytes;
  return arena;
}

PluginArena::~PluginArena() {
  device_.give_back(claimed_);
  if (!made_) return;
  device_.recording().note_freed(name_);
  call_and_forget([this] { device_.table()->free_arena(arena_); });
}

Status PluginArena::grow(std::size_t bytes) {
  TRY(device_.recording().check(DeviceCall::kGrowArena, name_));
  if (bytes > reserved_) return past_reserved(name_, bytes, reserved_);
  if (bytes <= size_) return ok_status();
  const std::size_t wanted = align_up(bytes, static_cast<std::size_t>(device_.properties().block_bytes));
  const std::size_t more = wanted - claimed_;
  TRY(device_.claim(DeviceCall::kGrowArena, name_, more));
  Status status = call([&](tessera_plugin_error* error) { return device_.table()->grow_arena(arena_, wanted, error); });
  if (!status.ok()) {
    device_.give_back(more);
    return refused(device_, DeviceCall::kGrowArena, name_, more, std::move(status));
  }
  claimed_ = wanted;
  size_ = std::min(wanted, reserved_);
  return ok_status();
}

}  // namespace tessera::plugin
