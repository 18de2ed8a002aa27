// The one recording that a device may have open. The recording belongs to the thread that began it. If this thread
// frees memory during the recording, the recording becomes void (invalid). Every backend tracks its recording with this
// class, which is thread-safe.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "tessera/base/status.h"
#include "tessera/device/device.h"
#include "tessera/device/errors.h"

namespace tessera {

class OpenRecording {
 public:
  // Opens a recording. If one is already open, returns a kFailedPrecondition error that names both recordings.
  Status open(const Stream& stream, const std::string& what);
  // Closes the recording. If the recording is void, or if another thread began it, returns an error that says so. Does
  // nothing if `stream` has no open recording.
  Status close(const Stream& stream);

  // Returns kFailedPrecondition for calls that the recording thread may not make.
  Status check(DeviceCall call, std::string_view object) const;
  bool on_this_thread() const;
  // Returns an error that says why the stream's open recording is void. Returns ok if the recording is not void or does
  // not exist.
  Status status(const Stream& stream) const;
  // Reports that memory was freed. On the recording thread this makes the recording void.
  void note_freed(std::string_view object);

 private:
  Status void_status() const;                   // precondition: the caller holds the mutex
  std::atomic<const Stream*> stream_{nullptr};  // read without the mutex, as null is the common case
  mutable std::mutex mutex_;
  std::thread::id thread_;
  std::string what_;
  std::string freed_;  // name of the first freed memory
};

}  // namespace tessera
