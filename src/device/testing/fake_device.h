// A CPU device that fails on purpose, to test how callers handle errors:
//
//   for (int n = 1;; ++n) {
//     auto device = FakeDevice::create({.out_of_memory_at = n}).value();
//     Status status = the_thing_under_test(*device);
//     if (device->counts().faults == 0) break;  // n is past the last allocation
//     EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
//   }
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>

#include "tessera/device/cpu/cpu_device.h"

namespace tessera {

// The calls that fail, counted from 1; 0: none. Calls that are refused anyway are not counted.
struct FaultPlan {
  std::int64_t out_of_memory_at = 0;  // counts allocations and arena creation or growth
  std::int64_t begin_recording_fails_at = 0;
  bool records_nothing = false;             // every recording fails when it begins
  std::int64_t end_recording_fails_at = 0;  // the recording is dropped
  std::int64_t launch_fails_at = 0;         // counts kernels, copies and fills, run or recorded
  std::int64_t replay_fails_at = 0;         // nothing of the graph runs
  // Nothing of the graph runs, and the caller of launch() is not told: the next wait for an event fails, as on a GPU.
  std::int64_t replay_lost_at = 0;
  std::int64_t lost_from = 0;  // the call of any kind from which on all calls fail with kDeviceLost
};

struct FaultCounts {
  std::int64_t memory_calls = 0;
  std::int64_t begun_recordings = 0;
  std::int64_t ended_recordings = 0;
  std::int64_t launches = 0;
  std::int64_t replays = 0;
  std::int64_t calls = 0;   // calls of any kind
  std::int64_t faults = 0;  // faults injected so far
};

class FakeDevice final : public CpuDevice {
 public:
  static Result<std::unique_ptr<FakeDevice>> create(FaultPlan plan, CpuDevice::Options options = {});

  // Starts again with another plan and all counts at 0. A lost device works again.
  void set_plan(FaultPlan plan);
  FaultCounts counts() const;
  // Bytes of the allocations and arenas that are alive.
  std::int64_t bytes_in_use() const { return used_bytes(); }

 protected:
  Status before(DeviceCall call, std::string_view object) override;
  bool loses_replay() override;

 private:
  FakeDevice(DeviceProperties properties, FaultPlan plan) : CpuDevice(std::move(properties)), plan_(plan) {}
  Status decide(DeviceCall call, std::string_view object);

  mutable std::mutex mutex_;
  FaultPlan plan_;
  FaultCounts counts_;
  bool replay_was_lost_ = false;  // a replay was lost, and no wait has reported it yet
};

}  // namespace tessera
