#include "tessera/device/recording.h"

#include <fmt/format.h>

namespace tessera {

Status OpenRecording::open(const Stream& stream, const std::string& what) {
  std::lock_guard lock(mutex_);
  if (stream_ != nullptr) return refused_while_recording(DeviceCall::kBeginRecording, what, what_);
  stream_ = &stream;
  thread_ = std::this_thread::get_id();
  what_ = what;
  freed_.clear();
  return ok_status();
}

Status OpenRecording::close(const Stream& stream) {
  std::lock_guard lock(mutex_);
  if (stream_ != &stream) return ok_status();
  stream_ = nullptr;
  if (thread_ != std::this_thread::get_id()) {
    return failed_precondition(
        fmt::format("recording '{}' ended on another thread than it began on, and is dropped", what_));
  }
  return void_status();
}

Status OpenRecording::void_status() const {
  if (freed_.empty()) return ok_status();
  return failed_precondition(fmt::format(
      "recording '{}' is dropped: '{}' was freed while it was open, and a graph may hold its address", what_, freed_));
}

Status OpenRecording::status(const Stream& stream) const {
  std::lock_guard lock(mutex_);
  return stream_ == &stream ? void_status() : ok_status();
}

Status OpenRecording::check(DeviceCall call, std::string_view object) const {
  if (allowed_while_recording(call) || !on_this_thread()) return ok_status();
  std::lock_guard lock(mutex_);
  return refused_while_recording(call, object, what_);
}

bool OpenRecording::on_this_thread() const {
  if (stream_.load(std::memory_order_relaxed) == nullptr) return false;
  std::lock_guard lock(mutex_);
  return stream_ != nullptr && thread_ == std::this_thread::get_id();
}

void OpenRecording::note_freed(std::string_view object) {
  if (!on_this_thread()) return;
  std::lock_guard lock(mutex_);
  if (freed_.empty()) freed_ = object.empty() ? "(unnamed memory)" : object;
}

}  // namespace tessera
