// Tests features that only the CPU device has: kernels as lambdas, their order, worker threads, and error messages. The
// conformance suite, which is instantiated at the end of the file, tests the contract of devices.
#include "tessera/device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <thread>

#include "tessera/device/cpu/parallel.h"
#include "tessera/device/testing/conformance.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<CpuDevice> create_device(int threads = 0) {
  return std::move(CpuDevice::create({.threads = threads})).value();
}

// Bug caught: outside a recording, a kernel that runs later than its launch or out of order.
TEST(CpuDevice, LaunchRunsAtOnceAndInOrder) {
  std::unique_ptr<CpuDevice> device = create_device();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::array<int, 3> order{};
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    int* counter = &count;
    int* out = order.data();
    ASSERT_TRUE(as_cpu(*stream).launch("note", [=] { out[i] = ++*counter; }).ok());
    EXPECT_EQ(count, i + 1);
  }
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

// Bug caught: a replay that runs kernels in another order, or a launch whose arguments were kept by reference.
TEST(CpuDevice, ReplayKeepsOrderAndArguments) {
  std::unique_ptr<CpuDevice> device = create_device();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::int64_t total = 1;
  std::int64_t* const out = &total;
  ASSERT_TRUE(stream->begin_recording("sum").ok());
  for (std::int64_t factor : {3, 5, 7}) {
    ASSERT_TRUE(as_cpu(*stream).launch("step", [=] { *out = *out * 10 + factor; }).ok());
    factor = 0;  // the launch has its own copy
  }
  EXPECT_EQ(total, 1) << "nothing runs while recording";
  std::unique_ptr<RecordedGraph> graph = stream->end_recording().value();
  EXPECT_GT(graph->stats().bytes, 0);
  ASSERT_TRUE(graph->launch(*stream).ok());
  EXPECT_EQ(total, 1357);
  total = 0;
  ASSERT_TRUE(graph->launch(*stream).ok());
  EXPECT_EQ(total, 357);
}

// Bug caught: a launch or a replay that does not return a kernel's error, or a replay that continues after the error.
TEST(CpuDevice, KernelErrorsComeBackByName) {
  std::unique_ptr<CpuDevice> device = create_device();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  bool fail = true;
  int after = 0;
  const bool* const failing = &fail;
  int* const ran = &after;
  const auto kernel = [=]() -> Status { return *failing ? internal_error("no primitive") : ok_status(); };
  Status status = as_cpu(*stream).launch("matmul", kernel);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message(), "matmul: no primitive");
  ASSERT_TRUE(stream->begin_recording("piece 5").ok());
  EXPECT_TRUE(as_cpu(*stream).launch("matmul", kernel).ok()) << "recorded, not run";
  EXPECT_TRUE(as_cpu(*stream).launch("after", [=] { ++*ran; }).ok());
  std::unique_ptr<RecordedGraph> graph = stream->end_recording().value();
  status = graph->launch(*stream);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("piece 5"), HasSubstr("matmul"), HasSubstr("no primitive")));
  EXPECT_EQ(after, 0);
  fail = false;
  EXPECT_TRUE(graph->launch(*stream).ok());
  EXPECT_EQ(after, 1);
}

// Bug caught: a launch that accepts arguments of the largest allowed size but cuts them off.
TEST(CpuDevice, LargestArgumentsArrive) {
  struct Arguments {
    std::int64_t* out;
    std::array<std::int64_t, 30> values;
  };
  static_assert(sizeof(Arguments) == CpuLaunch::kMaxArgumentBytes);
  std::unique_ptr<CpuDevice> device = create_device();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::int64_t out = 0;
  Arguments arguments{.out = &out, .values = {}};
  for (std::size_t i = 0; i < arguments.values.size(); ++i) arguments.values[i] = static_cast<std::int64_t>(i);
  ASSERT_TRUE(as_cpu(*stream)
                  .launch("sum",
                          [arguments] {
                            for (const std::int64_t value : arguments.values) *arguments.out += value;
                          })
                  .ok());
  EXPECT_EQ(out, 29 * 30 / 2);
}

// Bug caught: a graph that is replayed on the stream of a device that does not hold the graph's memory.
TEST(CpuDevice, GraphOfAnotherDeviceIsRefused) {
  std::unique_ptr<CpuDevice> one = create_device();
  std::unique_ptr<CpuDevice> two = create_device();
  std::unique_ptr<Stream> here = one->create_stream("here").value();
  std::unique_ptr<Stream> there = two->create_stream("there").value();
  ASSERT_TRUE(here->begin_recording("piece 1").ok());
  std::unique_ptr<RecordedGraph> graph = here->end_recording().value();
  const Status status = graph->launch(*there);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("piece 1"));
  std::unique_ptr<Event> event = two->create_event().value();
  EXPECT_EQ(here->record(*event).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(here->wait(*event).code(), StatusCode::kInvalidArgument);
  // Only one recording per device can be open, but two devices of one process can record at the same time.
  ASSERT_TRUE(here->begin_recording("a").ok());
  ASSERT_TRUE(there->begin_recording("b").ok());
  EXPECT_TRUE(two->allocate(16, "x").status().code() == StatusCode::kFailedPrecondition);
  EXPECT_TRUE(here->end_recording().ok());
  EXPECT_TRUE(there->end_recording().ok());
}

// Bug caught: freed memory that is still counted, so that the device runs out of memory over days.
TEST(CpuDevice, AvailableBytesFollowAllocations) {
  std::unique_ptr<CpuDevice> device = create_device();
  const auto most = static_cast<std::size_t>(device->available_bytes());
  ASSERT_GT(most, std::size_t{64} << 20);
  EXPECT_LE(device->available_bytes(), device->properties().memory_bytes);
  const auto memory = static_cast<std::size_t>(device->properties().memory_bytes);
  for (int i = 0; i < 100; ++i) {
    // Each allocation is a fiftieth of the memory. If freed ones were still counted, 100 of them would not fit.
    ASSERT_TRUE(device->allocate(memory / 50, "again").ok()) << i;
  }
}

// Bug caught: small allocations that are accepted although together they exceed the device's limit. The system's free
// memory is checked only for large allocations.
TEST(CpuDevice, SmallAllocationsAreCounted) {
  constexpr std::size_t kSmall = std::size_t{64} << 10;
  std::unique_ptr<CpuDevice> device = create_device();
  std::vector<std::unique_ptr<Allocation>> held;
  while (device->available_bytes() > std::int64_t{4} << 20) {
    held.push_back(device->allocate(static_cast<std::size_t>(device->available_bytes() / 2), "half").value());
  }
  Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    Result<std::unique_ptr<Allocation>> memory = device->allocate(kSmall, "small");
    status = memory.status();
    if (memory.ok()) held.push_back(std::move(memory).value());
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("small"));
}

// Bug caught: a thread count that applies only on the thread that created the device. OpenMP keeps this number per
// thread.
TEST(CpuDevice, ThreadCountHoldsOnEveryThread) {
#ifdef _OPENMP
  std::unique_ptr<CpuDevice> device = create_device(3);
  EXPECT_EQ(device->properties().threads, 3);
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  int seen = 0;
  int* const out = &seen;
  ASSERT_TRUE(stream->begin_recording("ask").ok());
  ASSERT_TRUE(as_cpu(*stream).launch("ask", [=] { *out = worker_threads(); }).ok());
  std::unique_ptr<RecordedGraph> graph = stream->end_recording().value();
  std::thread([&] { EXPECT_TRUE(as_cpu(*stream).launch("ask", [=] { *out = worker_threads(); }).ok()); }).join();
  EXPECT_EQ(seen, 3);
  seen = 0;
  std::thread([&] { EXPECT_TRUE(graph->launch(*stream).ok()); }).join();
  EXPECT_EQ(seen, 3);
  // Two devices with different thread counts are used in turn on the same thread.
  std::unique_ptr<CpuDevice> narrow = create_device(1);
  std::unique_ptr<Stream> other = narrow->create_stream("narrow").value();
  EXPECT_TRUE(as_cpu(*other).launch("ask", [=] { *out = worker_threads(); }).ok());
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(as_cpu(*stream).launch("ask", [=] { *out = worker_threads(); }).ok());
  EXPECT_EQ(seen, 3);
#else
  EXPECT_EQ(create_device(3)->properties().threads, 1);
#endif
}

// Bug caught: a thread count from the command line that reaches OpenMP unchecked.
TEST(CpuDevice, RefusesImpossibleThreadCounts) {
  for (const int threads : {-1, CpuDevice::kMaxThreads + 1, std::numeric_limits<int>::max()}) {
    const Result<std::unique_ptr<CpuDevice>> device = CpuDevice::create({.threads = threads});
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(device.status().message(), HasSubstr(std::to_string(threads)));
  }
}

// Bug caught: a device whose description a user cannot recognise.
TEST(CpuDevice, DescribesItself) {
  std::unique_ptr<CpuDevice> device = create_device(1);
  const DeviceProperties& properties = device->properties();
  EXPECT_EQ(properties.type, "cpu");
  EXPECT_TRUE(properties.on_host);
  EXPECT_THAT(properties.name, HasSubstr("1 thread"));
  EXPECT_GT(properties.memory_bytes, std::int64_t{64} << 20);
}

// Bug caught: ranges that overlap, leave a gap or come in an order that depends on timing.
TEST(CpuParallel, RangesCoverExactlyOnce) {
  std::unique_ptr<CpuDevice> device = create_device(4);
  for (const std::int64_t count : {0, 1, 2, 3, 5, 17, 1000}) {
    for (const std::int64_t grain : {0, 1, 4, 1000}) {
      std::vector<int> hits(static_cast<std::size_t>(count), 0);
      parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
      });
      EXPECT_THAT(hits, testing::Each(1)) << count << " by " << grain;
    }
    std::vector<int> hits(static_cast<std::size_t>(count), 0);
    parallel_for_dynamic(count, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
    EXPECT_THAT(hits, testing::Each(1)) << count;
  }
}

// Bug caught: a nested parallel loop that starts more threads, so that it deadlocks or oversubscribes the cores.
TEST(CpuParallel, NestsWithoutMoreThreads) {
  std::unique_ptr<CpuDevice> device = create_device(2);
  std::vector<int> hits(64, 0);
  parallel_for(8, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      parallel_for(8, 1, [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t j = b; j < e; ++j) ++hits[static_cast<std::size_t>(i * 8 + j)];
      });
    }
  });
  EXPECT_THAT(hits, testing::Each(1));
}

// Limits the address space of this process. The limit is so large that no allocation fails because of it. The
// destructor restores the old limit.
class AddressLimit {
 public:
  AddressLimit() {
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = rlim_t{1} << 50;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~AddressLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

// Bugs caught, under a limit such as `ulimit -v`: an arena that does not have all of its memory from the start, and an
// arena that is accepted although it is larger than the device's memory.
TEST(CpuDevice, ArenaHasItsMemoryUnderALimit) {
  const AddressLimit limit;
  std::unique_ptr<CpuDevice> device = create_device();
  EXPECT_FALSE(device->properties().arenas_grow);
  const std::unique_ptr<Arena> arena = device->create_arena({.reserve_bytes = 1 << 20, .name = "scratch"}).value();
  EXPECT_EQ(arena->size(), arena->reserved());
  arena->base().raw()[arena->size() - 1] = std::byte{1};
  const auto memory = static_cast<std::size_t>(device->properties().memory_bytes);
  const Status refused = device->create_arena({.reserve_bytes = 2 * memory, .name = "huge"}).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("huge"));
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformance,
                         testing::Values(DeviceFactory{"all_threads",
                                                       []() -> Result<std::unique_ptr<Device>> {
                                                         return TRY(CpuDevice::create({}));
                                                       }},
                                         DeviceFactory{"one_thread",
                                                       []() -> Result<std::unique_ptr<Device>> {
                                                         return TRY(CpuDevice::create({.threads = 1}));
                                                       }}),
                         device_factory_name);

}  // namespace
}  // namespace tessera
