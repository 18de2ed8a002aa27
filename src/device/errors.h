// Errors that all backends share.
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
  kLaunch,  // a kernel, copy or fill, run or recorded
  kRecordEvent,
  kWaitForEvent,      // a stream waits
  kSynchronizeEvent,  // the host waits
  kSynchronize,
  kBeginRecording,
  kEndRecording,
  kReplay,
  kInitialiseLibrary,  // initialising a library or loading code
};

// Returns text to be followed by the object's name: "allocation of", "upload on stream", …
std::string_view device_call_name(DeviceCall call);

// Returns whether the recording thread may make this call, on this or another stream.
bool allowed_while_recording(DeviceCall call);

// Returns kFailedPrecondition: the thread that records `recording` may not make `call` on `object`.
Status refused_while_recording(DeviceCall call, std::string_view object, std::string_view recording);

// Returns kResourceExhausted: `call` on `object` needs `bytes`, and the device can give `available`.
Status out_of_device_memory(DeviceCall call, std::string_view object, std::size_t bytes, std::int64_t available);

// Returns kResourceExhausted: `arena` needs more addresses than the system gives, or grew past what it reserved.
Status out_of_addresses(std::string_view arena, std::size_t bytes);
Status past_reserved(std::string_view arena, std::size_t bytes, std::size_t reserved);

// Returns kInvalidArgument if there are bytes to copy but the memory to copy to or from is missing.
Status check_addresses(DeviceCall call, std::string_view stream, bool to, bool from, std::size_t bytes);

// Returns kInvalidArgument: events and graphs work only on streams of their own device.
Status event_of_another_device(DeviceCall call, std::string_view stream);
Status graph_of_another_device(std::string_view graph);

// Returns kFailedPrecondition: a time was requested of an event that takes none, or that has not passed.
Status event_without_time(std::string_view event);

// Returns kFailedPrecondition: a recording was ended that was not begun.
Status no_open_recording(std::string_view stream);

}  // namespace tessera
