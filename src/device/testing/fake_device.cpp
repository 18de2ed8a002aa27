#include "tessera/device/testing/fake_device.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "tessera/device/cpu/parallel.h"

namespace tessera {

Result<std::unique_ptr<FakeDevice>> FakeDevice::create(FaultPlan plan, CpuDevice::Options options) {
  DeviceProperties properties = TRY(read_properties(options));
  set_worker_threads(properties.threads);
  return std::unique_ptr<FakeDevice>(new FakeDevice(std::move(properties), plan));
}

void FakeDevice::set_plan(FaultPlan plan) {
  std::lock_guard lock(mutex_);
  plan_ = plan;
  counts_ = {};
  replay_was_lost_ = false;
}

FaultCounts FakeDevice::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

Status FakeDevice::before(DeviceCall call, std::string_view object) {
  std::lock_guard lock(mutex_);
  Status status = decide(call, object);
  if (!status.ok()) ++counts_.faults;
  return status;
}

bool FakeDevice::loses_replay() {
  std::lock_guard lock(mutex_);
  if (counts_.replays != plan_.replay_lost_at) return false;
  replay_was_lost_ = true;
  return true;
}

Status FakeDevice::decide(DeviceCall call, std::string_view object) {
  const std::string what = fmt::format("{} '{}'", device_call_name(call), object);
  ++counts_.calls;
  if (plan_.lost_from > 0 && counts_.calls >= plan_.lost_from) {
    return device_lost(what + ": injected fault: the device is lost");
  }
  const auto fails = [](std::int64_t& count, std::int64_t at) { return ++count == at; };
  switch (call) {
    case DeviceCall::kAllocate:
    case DeviceCall::kCreateArena:
    case DeviceCall::kGrowArena:
      if (!fails(counts_.memory_calls, plan_.out_of_memory_at)) return ok_status();
      return resource_exhausted(what + ": injected fault: out of memory");
    case DeviceCall::kBeginRecording:
      if (!fails(counts_.begun_recordings, plan_.begin_recording_fails_at) && !plan_.records_nothing)
        return ok_status();
      return internal_error(what + ": injected fault: recording does not begin");
    case DeviceCall::kEndRecording:
      if (!fails(counts_.ended_recordings, plan_.end_recording_fails_at)) return ok_status();
      return internal_error(what + ": injected fault: no graph from this recording");
    case DeviceCall::kLaunch:
      if (!fails(counts_.launches, plan_.launch_fails_at)) return ok_status();
      return internal_error(what + ": injected fault: launch failed");
    case DeviceCall::kReplay:
      if (!fails(counts_.replays, plan_.replay_fails_at)) return ok_status();
      return internal_error(what + ": injected fault: replay failed");
    case DeviceCall::kSynchronizeEvent:
      if (!std::exchange(replay_was_lost_, false)) return ok_status();
      return internal_error(what + ": injected fault: a replay was lost");
    case DeviceCall::kOpenDevice:
    case DeviceCall::kCreateStream:
    case DeviceCall::kCreateEvent:
    case DeviceCall::kUpload:
    case DeviceCall::kDownload:
    case DeviceCall::kRecordEvent:
    case DeviceCall::kWaitForEvent:
    case DeviceCall::kSynchronize:
    case DeviceCall::kInitialiseLibrary: return ok_status();
  }
  return ok_status();
}

}  // namespace tessera
