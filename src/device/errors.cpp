#include "tessera/device/errors.h"

#include <fmt/format.h>

namespace tessera {
namespace {

double to_mib(double bytes) { return bytes / (1024.0 * 1024.0); }

}  // namespace

std::string_view device_call_name(DeviceCall call) {
  switch (call) {
    case DeviceCall::kOpenDevice: return "opening of device";
    case DeviceCall::kAllocate: return "allocation of";
    case DeviceCall::kCreateArena: return "creation of arena";
    case DeviceCall::kGrowArena: return "growth of arena";
    case DeviceCall::kCreateStream: return "creation of stream";
    case DeviceCall::kCreateEvent: return "creation of";
    case DeviceCall::kUpload: return "upload on stream";
    case DeviceCall::kDownload: return "download on stream";
    case DeviceCall::kLaunch: return "launch of";
    case DeviceCall::kRecordEvent: return "recording an event on stream";
    case DeviceCall::kWaitForEvent: return "waiting for an event on stream";
    case DeviceCall::kSynchronizeEvent: return "host wait for";
    case DeviceCall::kSynchronize: return "synchronisation of stream";
    case DeviceCall::kBeginRecording: return "beginning of recording";
    case DeviceCall::kEndRecording: return "end of recording";
    case DeviceCall::kReplay: return "replay of graph";
    case DeviceCall::kInitialiseLibrary: return "initialisation of";
  }
  return "unknown call on";
}

bool allowed_while_recording(DeviceCall call) {
  switch (call) {
    case DeviceCall::kAllocate:
    case DeviceCall::kCreateArena:
    case DeviceCall::kGrowArena:
    case DeviceCall::kCreateStream:
    case DeviceCall::kUpload:
    case DeviceCall::kDownload:
    case DeviceCall::kSynchronizeEvent:
    case DeviceCall::kSynchronize:
    case DeviceCall::kBeginRecording:
    case DeviceCall::kInitialiseLibrary: return false;
    case DeviceCall::kOpenDevice:
    case DeviceCall::kCreateEvent:
    case DeviceCall::kLaunch:
    case DeviceCall::kRecordEvent:
    case DeviceCall::kWaitForEvent:
    case DeviceCall::kEndRecording:
    case DeviceCall::kReplay: return true;
  }
  return false;
}

Status refused_while_recording(DeviceCall call, std::string_view object, std::string_view recording) {
  return failed_precondition(
      fmt::format("{} '{}' is refused while '{}' is being recorded: do it before begin_recording() or "
                  "after end_recording()",
                  device_call_name(call), object, recording));
}

Status out_of_device_memory(DeviceCall call, std::string_view object, std::size_t bytes, std::int64_t available) {
  return resource_exhausted(fmt::format("{} '{}' needs {} bytes ({:.1f} MiB), and {:.1f} MiB are available",
                                        device_call_name(call), object, bytes, to_mib(static_cast<double>(bytes)),
                                        to_mib(static_cast<double>(available))));
}

Status out_of_addresses(std::string_view arena, std::size_t bytes) {
  return resource_exhausted(fmt::format("{} '{}': the system does not give {} bytes of addresses; reserve less",
                                        device_call_name(DeviceCall::kCreateArena), arena, bytes));
}

Status past_reserved(std::string_view arena, std::size_t bytes, std::size_t reserved) {
  return resource_exhausted(fmt::format("{} '{}' to {} bytes goes past the {} bytes reserved for it",
                                        device_call_name(DeviceCall::kGrowArena), arena, bytes, reserved));
}

Status check_addresses(DeviceCall call, std::string_view stream, bool to, bool from, std::size_t bytes) {
  if (bytes == 0 || (to && from)) return ok_status();
  return invalid_argument(
      fmt::format("{} '{}': {} bytes {} a null address", device_call_name(call), stream, bytes, to ? "from" : "to"));
}

Status event_of_another_device(DeviceCall call, std::string_view stream) {
  return invalid_argument(fmt::format("{} '{}': the event is another device's", device_call_name(call), stream));
}

Status graph_of_another_device(std::string_view graph) {
  return invalid_argument(fmt::format("graph '{}' was recorded on another device than the stream's", graph));
}

Status event_without_time(std::string_view event) {
  return failed_precondition(
      fmt::format("event '{}' records no time, or it or the earlier event has not passed", event));
}

Status no_open_recording(std::string_view stream) {
  return failed_precondition(fmt::format("stream '{}' has no open recording to end", stream));
}

}  // namespace tessera
