// Catches: a fake device that does not fail as its plan says, or is unusable after a fault. Each test names its bug.
#include "tessera/device/testing/fake_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/conformance.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Uses memory of the device, records one graph, and replays it twice.
Status use(Device& device) {
  std::unique_ptr<Allocation> memory = TRY(device.allocate(64, "weights"));
  std::unique_ptr<Arena> arena = TRY(device.create_arena({.reserve_bytes = 8192, .name = "arena"}));
  TRY(arena->grow(64));
  std::unique_ptr<Stream> stream = TRY(device.create_stream("main"));
  TRY(stream->fill(memory->data(), 1, 64));
  TRY(stream->begin_recording("piece 0"));
  TRY(stream->copy(arena->base(), memory->data(), 64));
  std::unique_ptr<RecordedGraph> graph = TRY(stream->end_recording());
  TRY(graph->launch(*stream));
  TRY(graph->launch(*stream));
  std::uint8_t host = 0;
  TRY(stream->download(&host, arena->base(), 1));
  return stream->synchronize();
}

// Runs use() again and again. The first call that `at` counts fails in the first run, the second call in the second
// run, and so on. Returns the number of calls that can fail.
int count_faults(std::int64_t FaultPlan::*at, StatusCode code, const std::string& words) {
  for (int n = 1;; ++n) {
    FaultPlan plan;
    plan.*at = n;
    std::unique_ptr<FakeDevice> device = FakeDevice::create(plan, {.threads = 1}).value();
    const Status status = use(*device);
    if (device->counts().faults == 0) {
      EXPECT_TRUE(status.ok()) << status.to_string();
      return n - 1;
    }
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(words));
    // The device must still work after any failed call.
    device->set_plan({});
    const Status again = use(*device);
    EXPECT_TRUE(again.ok()) << "after fault " << n << ": " << again.to_string();
  }
}

// Bug caught: a fault that is never injected, so that tests of this fault prove nothing.
TEST(FakeDevice, InjectsEveryFaultOnce) {
  EXPECT_EQ(count_faults(&FaultPlan::out_of_memory_at, StatusCode::kResourceExhausted, "out of memory"), 3);
  EXPECT_EQ(count_faults(&FaultPlan::begin_recording_fails_at, StatusCode::kInternal, "piece 0"), 1);
  EXPECT_EQ(count_faults(&FaultPlan::end_recording_fails_at, StatusCode::kInternal, "piece 0"), 1);
  EXPECT_EQ(count_faults(&FaultPlan::launch_fails_at, StatusCode::kInternal, "launch"), 2);
  EXPECT_EQ(count_faults(&FaultPlan::replay_fails_at, StatusCode::kInternal, "piece 0"), 2);
  EXPECT_EQ(count_faults(&FaultPlan::lost_from, StatusCode::kDeviceLost, "lost"), 12);
}

// Bug caught: a lost replay that runs nevertheless, or that is never reported.
TEST(FakeDevice, ALostReplayIsReportedAtTheNextWait) {
  std::unique_ptr<FakeDevice> device = FakeDevice::create({.replay_lost_at = 2}, {.threads = 1}).value();
  std::unique_ptr<Allocation> memory = device->allocate(1, "x").value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::unique_ptr<Event> event = device->create_event().value();
  ASSERT_TRUE(stream->begin_recording("piece").ok());
  ASSERT_TRUE(stream->fill(memory->data(), 7, 1).ok());
  const std::unique_ptr<RecordedGraph> graph = stream->end_recording().value();
  for (const int expected : {7, 0, 7}) {
    std::uint8_t value = 0;
    ASSERT_TRUE(stream->upload(memory->data(), &value, 1).ok());
    ASSERT_TRUE(graph->launch(*stream).ok());
    ASSERT_TRUE(stream->record(*event).ok());
    EXPECT_EQ(event->synchronize().ok(), expected != 0);
    ASSERT_TRUE(stream->download(&value, memory->data(), 1).ok());
    EXPECT_EQ(value, expected);
  }
  EXPECT_EQ(device->counts().faults, 1);
}

// Bug caught: a lost device that recovers. Every call after the loss must fail too.
TEST(FakeDevice, LostDeviceStaysLost) {
  std::unique_ptr<FakeDevice> device = FakeDevice::create({.lost_from = 3}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::unique_ptr<Event> event = device->create_event().value();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(device->allocate(16, "x").status().code(), StatusCode::kDeviceLost);
    EXPECT_EQ(stream->synchronize().code(), StatusCode::kDeviceLost);
    EXPECT_EQ(stream->record(*event).code(), StatusCode::kDeviceLost);
    EXPECT_EQ(event->synchronize().code(), StatusCode::kDeviceLost);
    EXPECT_EQ(stream->begin_recording("piece").code(), StatusCode::kDeviceLost);
    EXPECT_FALSE(stream->recording());
  }
  EXPECT_EQ(device->counts().faults, 10);
}

// Bug caught: a failed end_recording() that leaves the recording open, so that the next capture is refused.
TEST(FakeDevice, FailedEndDropsTheRecording) {
  std::unique_ptr<FakeDevice> device = FakeDevice::create({.end_recording_fails_at = 2}, {.threads = 1}).value();
  std::unique_ptr<Allocation> memory = device->allocate(16, "x").value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  for (int k = 1; k <= 3; ++k) {
    ASSERT_TRUE(stream->begin_recording("piece").ok());
    ASSERT_TRUE(stream->fill(memory->data(), 1, 16).ok());
    Result<std::unique_ptr<RecordedGraph>> graph = stream->end_recording();
    EXPECT_EQ(graph.ok(), k != 2);
    EXPECT_FALSE(stream->recording());
    if (graph.ok()) {
      EXPECT_EQ((*graph)->stats().nodes, 1);
    }
  }
  EXPECT_EQ(device->counts().ended_recordings, 3);
}

// A fake device without faults passes the conformance suite.
INSTANTIATE_TEST_SUITE_P(Fake, DeviceConformance,
                         testing::Values(DeviceFactory{
                             "no_faults",
                             []() -> Result<std::unique_ptr<Device>> { return TRY(FakeDevice::create({})); }}),
                         device_factory_name);

}  // namespace
}  // namespace tessera
