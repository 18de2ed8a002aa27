// Makes the errors that all backends share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

// The operations of device.h that can fail. Errors and injected faults name them.
enum class DeviceCall : std::uint8_t {
  kOpenDevice,
  kAllocate,
  kCreateArena,
  kGrowArena,
  kCreateStream,
  kCreateEvent,
  kUpload,
  kDownload,
  kLaunch,  // a kernel, copy or fill that runs or is recorded
  kRecordEvent,
  kWaitForEvent,      // a stream waits for an event
  kSynchronizeEvent,  // the host waits for an event
  kSynchronize,
  kBeginRecording,
  kEndRecording,
  kReplay,
  kInitialiseLibrary,  // a library is initialised or code is loaded
};

// Returns the words that precede the object's name in a message, such as "allocation of" or "upload on stream".
std::string_view device_call_name(DeviceCall call);

// Returns whether a thread that records may make this call on the device, or on a stream that does not record. The
// recording stream itself allows only launches and the end of the recording.
bool allowed_while_recording(DeviceCall call);

// Returns kFailedPrecondition. The message says that the thread that records `recording` may not make `call` on
// `object`.
Status refused_while_recording(DeviceCall call, std::string_view object, std::string_view recording);

// Returns kResourceExhausted. The message says that `call` on `object` needs `bytes` and the device has only
// `available`.
Status out_of_device_memory(DeviceCall call, std::string_view object, std::size_t bytes, std::int64_t available);

// Return kResourceExhausted. The message says that the system has too few addresses for `arena`, or that `arena` would
// grow past its reserved addresses.
Status out_of_addresses(std::string_view arena, std::size_t bytes);
Status past_reserved(std::string_view arena, std::size_t bytes, std::size_t reserved);

// Returns kInvalidArgument if there are bytes to copy but an address is null. `to` is true if the destination's address
// is not null. `from` is true if the source's address is not null.
Status check_addresses(DeviceCall call, std::string_view stream, bool to, bool from, std::size_t bytes);

// Return kInvalidArgument. The message says that the event or the graph belongs to another device than the stream.
Status event_of_another_device(DeviceCall call, std::string_view stream);
Status graph_of_another_device(std::string_view graph);

// Returns kFailedPrecondition. The message names the two possible causes: `event` measures no time; or one of the two
// events of the measurement has not passed yet.
Status event_without_time(std::string_view event);

// Returns kFailedPrecondition. The message says that the stream has no recording to end.
Status no_open_recording(std::string_view stream);

}  // namespace tessera
