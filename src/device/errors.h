// Error messages that all backends share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// The operations of device.h that can fail, as errors and injected faults name them.
enum class DeviceCall : std::uint8_t {
  kOpenDevice,
  kAllocate,
  kCreateArena,
  kGrowArena,
  kCreateStream,
  kCreateEvent,
  kUpload,
  kDownload,
  kLaunch,  // a kernel, copy or fill, whether it runs or is recorded
  kRecordEvent,
  kWaitForEvent,      // a stream waits
  kSynchronizeEvent,  // the host waits
  kSynchronize,
  kBeginRecording,
  kEndRecording,
  kReplay,
  kInitialiseLibrary,  // or load code
};

// To be followed by the object's name: "allocation of", "upload on stream", …
std::string_view device_call_name(DeviceCall call);

// Whether the thread that records may make this call, on this or another stream.
bool allowed_while_recording(DeviceCall call);

// kFailedPrecondition: `call` on `object` by the thread that records `recording`.
Status refused_while_recording(DeviceCall call, std::string_view object, std::string_view recording);

// kResourceExhausted: `call` on `object` needs `bytes`, and the device can give `available`.
Status out_of_device_memory(DeviceCall call, std::string_view object, std::size_t bytes, std::int64_t available);

// kResourceExhausted: `arena` wants more addresses than the system gives, or to grow past what it reserved.
Status out_of_addresses(std::string_view arena, std::size_t bytes);
Status past_reserved(std::string_view arena, std::size_t bytes, std::size_t reserved);

// kInvalidArgument where there is something to copy, and no memory to copy it to or from.
Status check_addresses(DeviceCall call, std::string_view stream, bool to, bool from, std::size_t bytes);

// kInvalidArgument: events and graphs work on streams of their own device.
Status event_of_another_device(DeviceCall call, std::string_view stream);
Status graph_of_another_device(std::string_view graph);

// kFailedPrecondition: a time of an event that takes none, or that is not passed.
Status event_without_time(std::string_view event);

// kFailedPrecondition: the end of a recording that was not begun.
Status no_open_recording(std::string_view stream);

}  // namespace tessera
