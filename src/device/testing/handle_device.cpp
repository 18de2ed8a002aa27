#include "tessera/device/testing/handle_device.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/device/errors.h"

namespace tessera::testing {

class HandleAllocation final : public Allocation {
 public:
  HandleAllocation(HandleDevice& device, std::unique_ptr<Allocation> host) : device_(device), host_(std::move(host)) {
    size_ = host_->size();
    if (size_ > 0) data_ = device_.add(host_->data().raw(), size_);
  }
  ~HandleAllocation() override { device_.remove(data_); }
  HandleAllocation(const HandleAllocation&) = delete;
  HandleAllocation& operator=(const HandleAllocation&) = delete;

 private:
  HandleDevice& device_;
  std::unique_ptr<Allocation> host_;
};

class HandleArena final : public Arena {
 public:
  HandleArena(HandleDevice& device, std::unique_ptr<Arena> host) : device_(device), host_(std::move(host)) {
    size_ = reserved_ = host_->size();
    base_ = device_.add(host_->base().raw(), size_);
  }
  ~HandleArena() override { device_.remove(base_); }
  HandleArena(const HandleArena&) = delete;
  HandleArena& operator=(const HandleArena&) = delete;

  Status grow(std::size_t bytes) override { return host_->grow(bytes); }

 private:
  HandleDevice& device_;
  std::unique_ptr<Arena> host_;
};

namespace {

class HandleGraph final : public RecordedGraph {
 public:
  explicit HandleGraph(std::unique_ptr<RecordedGraph> host) : host_(std::move(host)) {}
  Status launch(Stream& stream) override {
    auto* mine = dynamic_cast<HandleStream*>(&stream);
    return mine == nullptr ? graph_of_another_device("graph of handles") : host_->launch(mine->host());
  }
  GraphStats stats() const override { return host_->stats(); }

 private:
  std::unique_ptr<RecordedGraph> host_;
};

}  // namespace

Result<std::unique_ptr<HandleDevice>> HandleDevice::create() {
  std::unique_ptr<HandleDevice> device(new HandleDevice);
  device->host_ = TRY(CpuDevice::create({.threads = 1}));
  device->properties_ = device->host_->properties();
  device->properties_.type = kType;
  device->properties_.on_host = false;
  device->properties_.has_pointers = false;
  device->properties_.arenas_grow = false;
  return device;
}

Result<std::unique_ptr<Allocation>> HandleDevice::allocate(std::size_t bytes, std::string_view name) {
  return std::make_unique<HandleAllocation>(*this, TRY(host_->allocate(bytes, name)));
}

Result<std::unique_ptr<Arena>> HandleDevice::create_arena(ArenaOptions options) {
  const std::size_t bytes = options.reserve_bytes;
  std::unique_ptr<Arena> arena = TRY(host_->create_arena(std::move(options)));
  TRY(arena->grow(bytes));
  return std::make_unique<HandleArena>(*this, std::move(arena));
}

Result<std::unique_ptr<Stream>> HandleDevice::create_stream(std::string name) {
  return std::make_unique<HandleStream>(*this, TRY(host_->create_stream(std::move(name))));
}

std::byte* HandleDevice::add(std::byte* data, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  auto* handle = reinterpret_cast<std::byte*>(++last_handle_);  // NOLINT(performance-no-int-to-ptr): never dereferenced
  ranges_[handle] = {data, bytes};
  return handle;
}

void HandleDevice::remove(const std::byte* handle) {
  std::lock_guard lock(mutex_);
  ranges_.erase(handle);
}

std::byte* HandleDevice::resolve(DeviceAddress address, std::size_t bytes) const {
  std::lock_guard lock(mutex_);
  const auto range = ranges_.find(address.handle);
  if (range == ranges_.end() || address.offset > range->second.bytes || bytes > range->second.bytes - address.offset)
    return nullptr;
  return range->second.data + address.offset;
}

// Returns the host address. If `address` is null or `bytes` is 0, returns a null address, because the host stream
// checks these cases itself.
Result<DeviceAddress> HandleStream::find(DeviceAddress address, std::size_t bytes) const {
  if (!address || bytes == 0) return DeviceAddress{};
  std::byte* data = device_.resolve(address, bytes);
  if (data != nullptr) return DeviceAddress{data};
  return invalid_argument(fmt::format("{} bytes at {} are not in this device's memory", bytes, address_text(address)));
}

Status HandleStream::upload(DeviceAddress device, const void* host, std::size_t bytes) {
  return host_->upload(TRY(find(device, bytes)), host, bytes);
}

Status HandleStream::download(void* host, DeviceAddress device, std::size_t bytes) {
  return host_->download(host, TRY(find(device, bytes)), bytes);
}

Status HandleStream::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  return host_->copy(TRY(find(to, bytes)), TRY(find(from, bytes)), bytes);
}

Status HandleStream::fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) {
  return host_->fill(TRY(find(to, bytes)), value, bytes);
}

Result<std::unique_ptr<RecordedGraph>> HandleStream::end_recording() {
  return std::make_unique<HandleGraph>(TRY(host_->end_recording()));
}

}  // namespace tessera::testing
