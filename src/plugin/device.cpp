#include "tessera/plugin/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tessera/device/errors.h"
#include "tessera/plugin/c_table.h"
#include "tessera/plugin/device_events.h"
#include "tessera/plugin/device_memory.h"

namespace tessera::plugin {
namespace {

struct Member {
  const char* name;
  bool is_set;
};

// Checks that all members are set. The error names the first missing member.
Status check_all(std::initializer_list<Member> members) {
  for (const Member& member : members)
    if (!member.is_set) return invalid_argument(fmt::format("the table has no {}", member.name));
  return ok_status();
}

Status check_together(std::initializer_list<Member> members) {
  const Member* set = nullptr;
  const Member* missing = nullptr;
  for (const Member& member : members) (member.is_set ? set : missing) = &member;
  if (set == nullptr || missing == nullptr) return ok_status();
  return invalid_argument(fmt::format("the table has {} and no {}; they come together", set->name, missing->name));
}

#define TESSERA_MEMBER(name) \
  Member { #name, table.name != nullptr }

Status check_table(const tessera_plugin_device& table) {
  TRY(check_all({TESSERA_MEMBER(open),
                 TESSERA_MEMBER(close),
                 TESSERA_MEMBER(available_bytes),
                 TESSERA_MEMBER(allocate),
                 TESSERA_MEMBER(free_memory),
                 TESSERA_MEMBER(create_arena),
                 TESSERA_MEMBER(free_arena),
                 TESSERA_MEMBER(create_stream),
                 TESSERA_MEMBER(free_stream),
                 TESSERA_MEMBER(upload),
                 TESSERA_MEMBER(download),
                 TESSERA_MEMBER(copy),
                 TESSERA_MEMBER(fill),
                 TESSERA_MEMBER(synchronize),
                 TESSERA_MEMBER(create_event),
                 TESSERA_MEMBER(free_event),
                 TESSERA_MEMBER(record_event),
                 TESSERA_MEMBER(wait_event),
                 TESSERA_MEMBER(synchronize_event),
                 TESSERA_MEMBER(event_milliseconds)}));
  TRY(check_together({TESSERA_MEMBER(allocate_host), TESSERA_MEMBER(free_host)}));
  TRY(check_together({TESSERA_MEMBER(begin_recording), TESSERA_MEMBER(end_recording), TESSERA_MEMBER(abandon_recording),
                      TESSERA_MEMBER(launch_graph), TESSERA_MEMBER(free_graph)}));
  if (table.capture != nullptr && table.launch_graph == nullptr)
    return invalid_argument("the table has capture and no launch_graph; they come together");
  return ok_status();
}

#undef TESSERA_MEMBER

Result<DeviceProperties> properties_of(const tessera_plugin_properties& c, const tessera_plugin_device& table) {
  const auto wrong = [&](std::string_view what) {
    return internal_error(fmt::format("device {}: its open() says {}", table.type, what));
  };
  if (c.name == nullptr) return wrong("no name");
  if (c.memory_bytes <= 0) return wrong(fmt::format("memory_bytes {}; 1 or more is accepted", c.memory_bytes));
  if (c.block_bytes < 1) return wrong(fmt::format("block_bytes {}; 1 or more is accepted", c.block_bytes));
  if (c.arenas_grow != 0 && table.grow_arena == nullptr) return wrong("arenas_grow, and the table has no grow_arena");
  if (c.graph_bytes < 0 || c.graph_node_bytes < 0) return wrong("negative bytes of graphs");
  return DeviceProperties{.type = table.type,
                          .on_host = c.on_host != 0,
                          .name = c.name,
                          .memory_bytes = c.memory_bytes,
                          .threads = c.threads,
                          .has_native_bf16 = c.has_bf16 != 0,
                          .block_bytes = c.block_bytes,
                          .has_pointers = c.has_pointers != 0,
                          .arenas_grow = c.arenas_grow != 0,
                          .graph_bytes = c.graph_bytes,
                          .graph_node_bytes = c.graph_node_bytes};
}

}  // namespace

Result<std::shared_ptr<const DeviceTable>> DeviceTable::create(const tessera_plugin_device* given) {
  const tessera_plugin_device table = TRY(copy_table(given, "device"));
  TRY(check_word(table.type, "device"));
  TRY(check_table(table).with_context(fmt::format("device {}", table.type)));
  return std::shared_ptr<const DeviceTable>(new DeviceTable(table));
}

Result<std::unique_ptr<PluginDevice>> PluginDevice::open(std::shared_ptr<const DeviceTable> table, int ordinal) {
  const tessera_plugin_device& c = *table->get();
  void* handle = nullptr;
  tessera_plugin_properties properties{};
  properties.size = sizeof(properties);
  TRY(call([&](tessera_plugin_error* error) {
        return c.open(c.self, ordinal, &handle, &properties, error);
      }).with_context(fmt::format("device {}", c.type)));
  std::unique_ptr<PluginDevice> device(new PluginDevice(std::move(table), handle));
  device->properties_ = TRY(properties_of(properties, c));
  device->why_no_graphs_ = c.begin_recording == nullptr          ? "its plugin has no functions for them"
                           : properties.why_no_graphs != nullptr ? properties.why_no_graphs
                                                                 : "";
  device->table_->note_opened(device->why_no_graphs_);
  return device;
}

std::string DeviceTable::why_no_graphs() const {
  const std::lock_guard lock(mutex_);
  return why_no_graphs_;
}

void DeviceTable::note_opened(std::string why_no_graphs) const {
  const std::lock_guard lock(mutex_);
  why_no_graphs_ = std::move(why_no_graphs);
}

PluginDevice::~PluginDevice() {
  call_and_forget([this] { table()->close(handle_); });
}

std::int64_t PluginDevice::available_bytes() const {
  std::int64_t bytes = 0;
  call_and_forget([&] { bytes = table()->available_bytes(handle_); });
  return bytes;
}

Status PluginDevice::claim(DeviceCall call, std::string_view object, std::size_t bytes) {
  std::int64_t used = used_bytes_;
  do {
    const std::int64_t left = properties_.memory_bytes - used;
    if (left < 0 || bytes > static_cast<std::size_t>(left))
      return out_of_device_memory(call, object, bytes, std::min(left, available_bytes()));
  } while (!used_bytes_.compare_exchange_weak(used, used + static_cast<std::int64_t>(bytes)));
  return ok_status();
}

Result<std::unique_ptr<Allocation>> PluginDevice::allocate(std::size_t bytes, std::string_view name) {
  TRY(recording_.check(DeviceCall::kAllocate, name));
  return TRY(PluginAllocation::create(*this, bytes, std::string(name)));
}

Result<std::unique_ptr<HostAllocation>> PluginDevice::allocate_host(std::size_t bytes, std::string_view name) {
  TRY(recording_.check(DeviceCall::kAllocate, name));
  return TRY(PluginHostAllocation::create(*this, bytes, std::string(name)));
}

Result<std::unique_ptr<Arena>> PluginDevice::create_arena(ArenaOptions options) {
  TRY(recording_.check(DeviceCall::kCreateArena, options.name));
  return TRY(PluginArena::create(*this, options));
}

Result<std::unique_ptr<Stream>> PluginDevice::create_stream(std::string name) {
  TRY(recording_.check(DeviceCall::kCreateStream, name));
  const std::string context = fmt::format("{} '{}'", device_call_name(DeviceCall::kCreateStream), name);
  void* stream = nullptr;
  TRY(call([&](tessera_plugin_error* error) {
        return table()->create_stream(handle_, name.c_str(), &stream, error);
      }).with_context(context));
  TRY(check_made(stream, "stream").with_context(context));
  return std::make_unique<PluginStream>(*this, std::move(name), stream);
}

Result<std::unique_ptr<Event>> PluginDevice::create_event(EventKind kind) {
  std::string name = fmt::format("event {}", ++events_);
  TRY(recording_.check(DeviceCall::kCreateEvent, name));
  return TRY(PluginEvent::create(*this, std::move(name), kind));
}

}  // namespace tessera::plugin
