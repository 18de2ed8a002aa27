// A CPU device that fails on purpose. Tests use it to check how callers handle errors:
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

// For each kind of fault, the number of the call that fails. Numbers begin with 1, and 0 means that no call fails.
// Calls that would fail even without the fault are not counted.
struct FaultPlan {
  std::int64_t out_of_memory_at = 0;  // counts allocations, and creations and growths of arenas
  std::int64_t begin_recording_fails_at = 0;
  bool records_nothing = false;             // whether every begin_recording() fails
  std::int64_t end_recording_fails_at = 0;  // the failing call discards the recording
  std::int64_t launch_fails_at = 0;         // counts kernels, copies and fills that run or are recorded
  std::int64_t replay_fails_at = 0;         // no part of the graph runs in the failing replay
  // No part of the graph runs in the lost replay, but launch() returns ok. The next wait for an event fails, as on a
  // GPU.
  std::int64_t replay_lost_at = 0;
  // The call with this number and all later calls fail with kDeviceLost. Calls of every kind are counted.
  std::int64_t lost_from = 0;
};

struct FaultCounts {
  std::int64_t memory_calls = 0;
  std::int64_t begun_recordings = 0;
  std::int64_t ended_recordings = 0;
  std::int64_t launches = 0;
  std::int64_t replays = 0;
  std::int64_t calls = 0;   // number of calls of any kind
  std::int64_t faults = 0;  // number of faults that were injected until now
};

class FakeDevice final : public CpuDevice {
 public:
  static Result<std::unique_ptr<FakeDevice>> create(FaultPlan plan, CpuDevice::Options options = {});

  // Sets another plan and resets all counts to 0. A lost device works again.
  void set_plan(FaultPlan plan);
  FaultCounts counts() const;
  // Returns the bytes of live allocations and arenas.
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
