#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/cpu/cpu_graph.h"
#include "tessera/device/cpu/parallel.h"

namespace tessera {

CpuStream::CpuStream(CpuDevice& device, std::string name) : device_(device), name_(std::move(name)) {}

CpuStream::~CpuStream() { CpuStream::abandon_recording(); }

Status CpuStream::enter(DeviceCall call) const {
  if (recording_) return refused_while_recording(call, name_, recording_what_);
  return device_.enter(call, name_);
}

Status CpuStream::enqueue(const CpuLaunch& launch) {
  TRY(device_.enter(DeviceCall::kLaunch, launch.name()));
  if (recording_) {
    recorded_.push_back(launch);
    return ok_status();
  }
  set_worker_threads(device_.properties().threads);
  Status status = launch.run();
  if (!status.ok()) [[unlikely]]
    return std::move(status).with_context(launch.name());
  return status;
}

Status CpuStream::upload(DeviceAddress device, const void* host, std::size_t bytes) {
  TRY(enter(DeviceCall::kUpload));
  TRY(check_addresses(DeviceCall::kUpload, name_, bool(device), host != nullptr, bytes));
  if (bytes > 0) std::memcpy(device.raw(), host, bytes);
  return ok_status();
}

Status CpuStream::download(void* host, DeviceAddress device, std::size_t bytes) {
  TRY(enter(DeviceCall::kDownload));
  TRY(check_addresses(DeviceCall::kDownload, name_, host != nullptr, bool(device), bytes));
  if (bytes > 0) std::memcpy(host, device.raw(), bytes);
  return ok_status();
}

Status CpuStream::copy(DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(from), bytes));
  if (bytes == 0) return ok_status();
  return launch("copy", [to = to.raw(), from = from.raw(), bytes] { std::memcpy(to, from, bytes); });
}

Status CpuStream::fill(DeviceAddress to, std::uint8_t value, std::size_t bytes) {
  TRY(check_addresses(DeviceCall::kLaunch, name_, bool(to), bool(to), bytes));
  if (bytes == 0) return ok_status();
  return launch("fill", [to = to.raw(), value, bytes] { std::memset(to, value, bytes); });
}

Status CpuStream::record(Event& event) {
  TRY(enter(DeviceCall::kRecordEvent));
  auto* mine = dynamic_cast<CpuEvent*>(&event);
  if (mine == nullptr || mine->device() != &device_) return event_of_another_device(DeviceCall::kRecordEvent, name_);
  mine->mark();
  return ok_status();
}

Status CpuStream::wait(Event& event) {
  TRY(enter(DeviceCall::kWaitForEvent));
  auto* mine = dynamic_cast<CpuEvent*>(&event);
  if (mine == nullptr || mine->device() != &device_) return event_of_another_device(DeviceCall::kWaitForEvent, name_);
  mine->observe();
  return ok_status();
}

Status CpuStream::recording_status() const { return device_.recording_.status(*this); }

Status CpuStream::synchronize() { return enter(DeviceCall::kSynchronize); }

Status CpuStream::begin_recording(std::string what) {
  // This function calls open() instead of enter(). If a recording is already open, the error of open() is clearer,
  // because it names both recordings.
  TRY(device_.recording_.open(*this, what));
  Status allowed = device_.before(DeviceCall::kBeginRecording, what);
  if (!allowed.ok()) {
    (void)device_.recording_.close(*this);
    return allowed;
  }
  recording_ = true;
  recording_what_ = std::move(what);
  return ok_status();
}

Result<std::unique_ptr<RecordedGraph>> CpuStream::end_recording() {
  if (!recording_) return no_open_recording(name_);
  recording_ = false;
  std::vector<CpuLaunch> launches;
  launches.swap(recorded_);
  TRY(device_.recording_.close(*this));
  TRY(device_.enter(DeviceCall::kEndRecording, recording_what_));
  launches.shrink_to_fit();
  return std::make_unique<CpuGraph>(device_, recording_what_, std::move(launches));
}

void CpuStream::abandon_recording() {
  if (!recording_) return;
  recording_ = false;
  recorded_.clear();
  // The recording is dropped in any case, so the error that close() returns for an invalid recording does not matter.
  (void)device_.recording_.close(*this);
}

}  // namespace tessera
