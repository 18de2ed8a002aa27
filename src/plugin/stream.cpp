#include <fmt/format.h>

#include <utility>

#include "tessera/device/errors.h"
#include "tessera/plugin/device.h"
#include "tessera/plugin/device_events.h"

namespace tessera::plugin {

template <class F>
Status PluginStream::run(DeviceCall what, const F& function) const {
  Status status = call(function);
  if (status.ok()) [[likely]]
    return ok_status();
  return std::move(status).with_context(fmt::format("{} '{}'", device_call_name(what), name_));
}

PluginStream::~PluginStream() {
  PluginStream::abandon_recording();
  // Waits first, because tessera_plugin.h guarantees that free_stream() gets only streams whose work has ended.
  // Ignores an error, because a destructor cannot report it.
  (void)PluginStream::synchronize();
  call_and_forget([this] { device_.table()->free_stream(handle_); });
}

Status PluginStream::enter(DeviceCall call) const {
  if (recording_) return refused_while_recording(call, name_, recording_what_);
  return device_.recording().check(call, name_);
}

Status PluginStream::upload(DeviceAddress device, const void* host, std::size_t bytes) {
  TRY(enter(DeviceCall::kUpload));
  TRY(check_addresses(DeviceCall::kUpload, name_, bool(device), host != nullptr, bytes));
  if (bytes == 0) return ok_status();
  return run(DeviceCall::kUpload, [&](tessera_plugin_error* error) {
    return device_.table()->upload(handle_, {device.handle, device.offset}, host, bytes, error);
  });
}

Status PluginStream::download(void* host, DeviceAddress device, std::size_t bytes) {
  TRY(enter(DeviceCall::kDownload));
  TRY(check_addresses(DeviceCall::kDownload, name_, host != nullptr, bool(device), bytes));
  if (bytes == 0) return ok_status();
  return run(DeviceCall::kDownload, [&](tessera_plugin_error* error) {
    return device_.table()->download(handle_, host, {device.handle, device.offset}, bytes, error);
  });
}

Status PluginStream::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(from), bytes));
  if (bytes == 0) return ok_status();
  return run(DeviceCall::kLaunch, [&](tessera_plugin_error* error) {
    return device_.table()->copy(handle_, {to.handle, to.offset}, {from.handle, from.offset}, bytes, error);
  });
}

Status PluginStream::fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(to), bytes));
  if (bytes == 0) return ok_status();
  return run(DeviceCall::kLaunch, [&](tessera_plugin_error* error) {
    return device_.table()->fill(handle_, {to.handle, to.offset}, value, bytes, error);
  });
}

Status PluginStream::record(Event& event) {
  TRY(enter(DeviceCall::kRecordEvent));
  auto* mine = dynamic_cast<PluginEvent*>(&event);
  if (mine == nullptr || mine->device() != &device_) return event_of_another_device(DeviceCall::kRecordEvent, name_);
  TRY(run(DeviceCall::kRecordEvent,
          [&](tessera_plugin_error* error) { return device_.table()->record_event(handle_, mine->handle(), error); }));
  mine->set_recorded();
  return ok_status();
}

Status PluginStream::wait(Event& event) {
  TRY(enter(DeviceCall::kWaitForEvent));
  auto* mine = dynamic_cast<PluginEvent*>(&event);
  if (mine == nullptr || mine->device() != &device_) return event_of_another_device(DeviceCall::kWaitForEvent, name_);
  if (!mine->is_recorded()) return ok_status();
  return run(DeviceCall::kWaitForEvent,
             [&](tessera_plugin_error* error) { return device_.table()->wait_event(handle_, mine->handle(), error); });
}

Status PluginStream::synchronize() {
  TRY(enter(DeviceCall::kSynchronize));
  return run(DeviceCall::kSynchronize,
             [&](tessera_plugin_error* error) { return device_.table()->synchronize(handle_, error); });
}

Status PluginStream::begin_recording(std::string what) {
  if (!device_.why_no_graphs().empty())
    return unimplemented(
        fmt::format("{}: device {} records no graphs, {}", what, device_.properties().type, device_.why_no_graphs()));
  TRY(device_.recording().open(*this, what));
  const Status begun = run(DeviceCall::kBeginRecording, [&](tessera_plugin_error* error) {
    return device_.table()->begin_recording(handle_, what.c_str(), error);
  });
  if (!begun.ok()) {
    (void)device_.recording().close(*this);  // nothing was recorded, so close() cannot fail for an invalid recording
    return begun;
  }
  recording_ = true;
  recording_what_ = std::move(what);
  return ok_status();
}

Result<std::unique_ptr<RecordedGraph>> PluginStream::end_recording() {
  if (!recording_) return no_open_recording(name_);
  if (const Status closed = device_.recording().close(*this); !closed.ok()) {
    recording_ = false;
    call_and_forget([this] { device_.table()->abandon_recording(handle_); });
    return closed;
  }
  recording_ = false;
  void* graph = nullptr;
  GraphStats stats;
  TRY(run(DeviceCall::kEndRecording, [&](tessera_plugin_error* error) {
    return device_.table()->end_recording(handle_, &graph, &stats.nodes, &stats.bytes, error);
  }));
  TRY(check_made(graph, "graph")
          .with_context(fmt::format("{} '{}'", device_call_name(DeviceCall::kEndRecording), name_)));
  return std::make_unique<PluginGraph>(device_, recording_what_, graph, stats);
}

void PluginStream::abandon_recording() {
  if (!recording_) return;
  recording_ = false;
  (void)device_.recording().close(*this);  // the recording is discarded, so the error of an invalid one does not matter
  call_and_forget([this] { device_.table()->abandon_recording(handle_); });
}

}  // namespace tessera::plugin
