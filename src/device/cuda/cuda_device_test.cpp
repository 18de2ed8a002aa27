// Runs the conformance suite on the CUDA device: on a real GPU if there is one, and always on a fake driver in host
// memory. Other tests need a real GPU. They check that the calls that an engine makes in every step allocate nothing
// and are fast.
#include "tessera/device/cuda/cuda_device.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <new>

#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/testing/fake_driver.h"
#include "tessera/device/cuda/vmm_arena.h"
#include "tessera/device/testing/conformance.h"

namespace {
thread_local std::int64_t heap_allocations = 0;  // number of heap allocations on this thread

void* allocate_counted(std::size_t bytes, std::size_t alignment) {
  ++heap_allocations;
  bytes = (bytes + alignment - 1) / alignment * alignment;
  if (void* const data = std::aligned_alloc(alignment, bytes == 0 ? alignment : bytes)) return data;
  throw std::bad_alloc();
}
}  // namespace

// operator new and operator delete are marked noinline because of a false warning of g++ 12. Under sanitizers, g++ 12
// may inline only one of the two. The compiler then warns that free() gets memory from operator new.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate_counted(bytes, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_counted(bytes, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_us(Clock::time_point since) {
  return std::chrono::duration<double, std::micro>(Clock::now() - since).count();
}

// Keeps the GPU's context alive between tests, because it takes most of a second to create a context.
class OpenGpu final : public testing::Environment {
 public:
  void SetUp() override {
    Result<std::unique_ptr<CudaDevice>> device = CudaDevice::create({});
    if (device.ok()) device_ = std::move(device).value();
    fmt::print("GPU: {}\n", device_ != nullptr ? device_->properties().name : device.status().message());
  }
  void TearDown() override { device_.reset(); }

 private:
  std::unique_ptr<CudaDevice> device_;
};

const testing::Environment* const kOpenGpu = testing::AddGlobalTestEnvironment(new OpenGpu);

class CudaGpu : public testing::Test {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<CudaDevice>> device = CudaDevice::create({});
    if (device.status().code() == StatusCode::kNotFound) GTEST_SKIP() << device.status().message();
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = std::move(device).value();
    stream_ = device_->create_stream("main").value();
  }

  // Records `nodes` fills of `memory`.
  std::unique_ptr<RecordedGraph> record_fills(const Allocation& memory, int nodes) {
    EXPECT_TRUE(stream_->begin_recording("fills").ok());
    for (int i = 0; i < nodes; ++i) EXPECT_TRUE(stream_->fill(memory.data(), 1, memory.size()).ok());
    return stream_->end_recording().value();
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<Stream> stream_;
};

// Bug caught: a heap allocation in each step, which a decode would repeat thousands of times a second.
TEST_F(CudaGpu, SteadyStepsDoNotTouchTheHeap) {
  constexpr int kSteps = 1000;
  constexpr std::size_t kBytes = 40000;  // 1000 uploads go around the stream's staging ring of 4 MiB several times
  std::unique_ptr<Allocation> memory = device_->allocate(kBytes, "x").value();
  std::unique_ptr<HostAllocation> pinned = device_->allocate_host(64, "ids").value();
  std::unique_ptr<Stream> second = device_->create_stream("second").value();
  std::unique_ptr<Event> event = device_->create_event().value();
  std::unique_ptr<RecordedGraph> graph = record_fills(*memory, 4);
  const std::vector<std::byte> host(kBytes);
  const auto step = [&]() -> Status {
    TRY(stream_->upload(memory->data(), host.data(), host.size()));
    TRY(graph->launch(*stream_));
    TRY(as_cuda(*stream_).begin_launch("kernel"));
    TRY(stream_->download(pinned->data(), memory->data(), 64));
    TRY(stream_->record(*event));
    TRY(second->wait(*event));
    return event->synchronize();
  };
  ASSERT_TRUE(step().ok());
  const std::int64_t before = heap_allocations;
  Status status;
  for (int i = 0; i < kSteps && status.ok(); ++i) status = step();
  EXPECT_EQ(heap_allocations - before, 0);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(pinned->data()[63], std::byte{1});
}

// Bug caught: an extra driver call, lock or wait in the calls that an engine makes in every step. The limits in µs are
// ten times the usual values.
TEST_F(CudaGpu, HostCostOfTheHotPath) {
  std::unique_ptr<Allocation> memory = device_->allocate(1 << 20, "x").value();
  std::unique_ptr<HostAllocation> pinned = device_->allocate_host(400, "ids").value();
  std::unique_ptr<Event> event = device_->create_event().value();
  std::unique_ptr<RecordedGraph> graph = record_fills(*memory, 10);
  const std::vector<std::byte> host(400);
  const auto measure_us = [&](int rounds, auto&& call) {
    EXPECT_TRUE(call().ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    const Clock::time_point start = Clock::now();
    Status status;
    for (int i = 0; i < rounds && status.ok(); ++i) status = call();
    const double us = elapsed_us(start) / rounds;
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(stream_->synchronize().ok());
    return us;
  };
  const double begin_us = measure_us(1000000, [&] { return as_cuda(*stream_).begin_launch("kernel"); });
  const double staged_us = measure_us(500, [&] { return stream_->upload(memory->data(), host.data(), 400); });
  const double pinned_us = measure_us(500, [&] { return stream_->upload(memory->data(), pinned->data(), 400); });
  const double event_us = measure_us(500, [&] { return stream_->record(*event); });
  const double launch_us = measure_us(100, [&] { return graph->launch(*stream_); });
  fmt::print(
      "begin_launch {:.4f} µs, upload of 400 bytes {:.2f} µs (pinned {:.2f}), event {:.2f} µs, "
      "launch of a graph of 10 nodes {:.2f} µs\n",
      begin_us, staged_us, pinned_us, event_us, launch_us);
  EXPECT_LT(begin_us, 0.1);
  EXPECT_LT(staged_us, 50);
  EXPECT_LT(pinned_us, 50);
  EXPECT_LT(event_us, 50);
  EXPECT_LT(launch_us, 100);
}

// Bug caught: a capture so slow that 1700 graphs take more than the 5 s allowed for them.
TEST_F(CudaGpu, CapturesAreQuick) {
  constexpr int kGraphs = 300;
  constexpr int kNodes = 15;
  std::unique_ptr<Allocation> memory = device_->allocate(1 << 20, "x").value();
  (void)record_fills(*memory, kNodes);
  const std::int64_t available = device_->available_bytes();
  std::vector<std::unique_ptr<RecordedGraph>> graphs;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kGraphs; ++i) graphs.push_back(record_fills(*memory, kNodes));
  const double us = elapsed_us(start) / kGraphs;
  EXPECT_TRUE(stream_->synchronize().ok());
  const std::int64_t taken = available - device_->available_bytes();
  fmt::print("{} graphs of {} nodes: {:.0f} µs and {} bytes of GPU memory each\n", kGraphs, kNodes, us,
             taken / kGraphs);
  EXPECT_LT(us, 2900);
  EXPECT_GE(taken, 0);
  for (const std::unique_ptr<RecordedGraph>& graph : graphs) EXPECT_TRUE(graph->launch(*stream_).ok());
  EXPECT_TRUE(stream_->synchronize().ok());
}

// Bug caught: large uploads that wait for one copy before they stage the next. Prints the rates from ordinary and from
// pinned memory.
TEST_F(CudaGpu, LargeUploads) {
  constexpr std::size_t kBytes = std::size_t{256} << 20;
  std::unique_ptr<Allocation> memory = device_->allocate(kBytes, "x").value();
  std::unique_ptr<HostAllocation> pinned = device_->allocate_host(kBytes, "pinned").value();
  const std::vector<std::byte> ordinary(kBytes, std::byte{1});
  std::fill_n(pinned->data(), kBytes, std::byte{1});
  const auto rate_gbs = [&](const void* host) {
    const Clock::time_point start = Clock::now();
    EXPECT_TRUE(stream_->upload(memory->data(), host, kBytes).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return static_cast<double>(kBytes) / elapsed_us(start) / 1e3;
  };
  (void)rate_gbs(pinned->data());
  const double direct = rate_gbs(pinned->data());
  const double staged = rate_gbs(ordinary.data());
  fmt::print("upload of 256 MiB: {:.1f} GB/s from pinned memory, {:.1f} GB/s staged\n", direct, staged);
  EXPECT_GT(staged, 0.05 * direct);
}

// Bug caught: a device that cannot record any more after a library made a forbidden call during a capture.
TEST_F(CudaGpu, BrokenCaptureIsDropped) {
  std::unique_ptr<Allocation> memory = device_->allocate(64, "x").value();
  ASSERT_TRUE(stream_->begin_recording("piece 3").ok());
  ASSERT_TRUE(stream_->fill(memory->data(), 1, 64).ok());
  EXPECT_NE(device_->driver().cuStreamSynchronize(as_cuda(*stream_).handle()), CUDA_SUCCESS);
  // The error is reported even if the operator ignored the library's status.
  const Status so_far = stream_->recording_status();
  EXPECT_EQ(so_far.code(), StatusCode::kFailedPrecondition) << so_far.to_string();
  EXPECT_THAT(so_far.message(), testing::AllOf(testing::HasSubstr("piece 3"), testing::HasSubstr("does not allow")));
  const Status status = stream_->end_recording().status();
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
  EXPECT_THAT(status.message(),
              testing::AllOf(testing::HasSubstr("piece 3"), testing::HasSubstr("cuStreamEndCapture")));
  EXPECT_NE(record_fills(*memory, 3), nullptr);
}

// Prints which attributes the driver granted, because containers often refuse RDMA.
TEST_F(CudaGpu, AttributesOfArenas) {
  std::unique_ptr<VmmArena> arena = VmmArena::create(*device_, {.reserve_bytes = 8 << 20, .name = "arena"}).value();
  ASSERT_TRUE(arena->grow(1).ok());
  fmt::print("arenas: exportable {}, RDMA {}, grow by {} bytes\n", arena->exportable(), arena->rdma_capable(),
             arena->size());
  EXPECT_GE(arena->size(), kDeviceAlignment);
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance,
                         testing::Values(DeviceFactory{
                             "cuda_0",
                             []() -> Result<std::unique_ptr<Device>> { return TRY(CudaDevice::create({})); }}),
                         device_factory_name);

// Makes a new fake driver for each device. The driver outlives the device.
Result<std::unique_ptr<Device>> create_on_fake_driver() {
  static std::unique_ptr<FakeDriver> fake;
  fake.reset();
  fake = std::make_unique<FakeDriver>();
  return TRY(CudaDevice::create({.driver = &fake->table()}));
}

INSTANTIATE_TEST_SUITE_P(HostMemoryDriver, DeviceConformance,
                         testing::Values(DeviceFactory{"fake", create_on_fake_driver}), device_factory_name);

}  // namespace
}  // namespace tessera
