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

// The number of the call that fails, for each kind of fault. Numbers count from 1; 0: no call fails. Calls that would
// be refused anyway are not counted.
struct FaultPlan {
  std::int64_t out_of_memory_at = 0;  // counts allocations, and creations and growths of arenas
  std::int64_t begin_recording_fails_at = 0;
  bool records_nothing = false;             // every begin_recording() fails
  std::int64_t end_recording_fails_at = 0;  // the recording is then discarded
  std::int64_t launch_fails_at = 0;         // counts kernels, copies and fills, run or recorded
  std::int64_t replay_fails_at = 0;         // no part of the graph runs
  // No part of the graph runs, but launch() succeeds. The next wait for an event fails, as on a GPU.
  std::int64_t replay_lost_at = 0;
  std::int64_t lost_from = 0;  // this call and all later ones fail with kDeviceLost; counts calls of every kind
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
