// The one recording that a device may have open: exclusive per device, bound to the thread that began it, and
// void once that thread frees memory. Every backend keeps its recordings with it. Thread-safe.
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
  // kFailedPrecondition, which names both recordings, where one is open.
  Status open(const Stream& stream, const std::string& what);
  // The error says what made the recording void. Nothing happens where `stream` has none open.
  Status close(const Stream& stream);

  // kFailedPrecondition for what the recording thread may not do.
  Status check(DeviceCall call, std::string_view object) const;
  bool on_this_thread() const;
  // What has made the open recording void so far; ok where `stream` has none open.
  Status status(const Stream& stream) const;
  // Memory was freed: on the recording thread this makes the recording void.
  void note_freed(std::string_view object);

 private:
  Status void_status() const;                   // under the mutex
  std::atomic<const Stream*> stream_{nullptr};  // read without the mutex where null is the common case
  mutable std::mutex mutex_;
  std::thread::id thread_;
  std::string what_;
  std::string freed_;  // the first one's name
};

}  // namespace tessera
