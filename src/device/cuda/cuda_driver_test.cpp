// Tests how the CUDA device uses its driver: the errors for machines and GPUs that it cannot use, the error for each
// failed driver call, and the release of every driver object. The tests use a fake driver in host memory, so they run
// on any machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/device/cuda/staging.h"
#include "tessera/device/cuda/testing/fake_driver.h"
#include "tessera/device/cuda/vmm_arena.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

Status open_status(FakeDriverOptions options, int ordinal = 0) {
  const FakeDriver fake(options);
  return CudaDevice::create({.ordinal = ordinal, .driver = &fake.table()}).status();
}

// Uses every kind of object of a device once.
Status use(Device& device) {
  std::unique_ptr<Allocation> memory = TRY(device.allocate(64, "weights"));
  std::unique_ptr<HostAllocation> host = TRY(device.allocate_host(64, "batch"));
  const std::unique_ptr<HostAllocation> large = TRY(device.allocate_host(5 << 20, "adapter"));  // in huge pages
  std::unique_ptr<Arena> arena = TRY(device.create_arena({.reserve_bytes = 8 << 20, .name = "arena"}));
  TRY(arena->grow(64));
  TRY(arena->grow(3 << 20));
  std::unique_ptr<Stream> stream = TRY(device.create_stream("main"));
  std::unique_ptr<Event> event = TRY(device.create_event());
  std::unique_ptr<Event> begin = TRY(device.create_event(EventKind::kTime));
  std::unique_ptr<Event> end = TRY(device.create_event(EventKind::kTime));
  const std::vector<std::byte> ordinary(StagingRing::kSegments * StagingRing::kSegmentBytes / 2);
  for (int i = 0; i < 5; ++i) TRY(stream->upload(arena->base(), ordinary.data(), ordinary.size()));
  TRY(stream->upload(memory->data(), host->data(), 64));
  Stream* const side = TRY(stream->side());
  TRY(stream->begin_recording("piece 0"));
  TRY(stream->copy(arena->base(), memory->data(), 64));
  TRY(stream->copy_rows(arena->base(), memory->data(), 8, 16, 2));
  TRY(stream->fork_side());
  TRY(side->fill(arena->base(), 1, 32));
  TRY(stream->join_side());
  std::unique_ptr<RecordedGraph> graph = TRY(stream->end_recording());
  TRY(stream->record(*begin));
  TRY(graph->launch(*stream));
  TRY(stream->record(*end));
  TRY(stream->record(*event));
  TRY(stream->wait(*event));
  TRY(event->synchronize());
  std::array<std::byte, 64> back{};
  TRY(stream->download(back.data(), arena->base(), 64));
  TRY(stream->synchronize());
  TRY(end->milliseconds_since(*begin));
  return ok_status();
}

// Bug caught: without a driver, a crash or an error that says no more than "file not found".
TEST(CudaDriver, MissingDriverIsNamed) {
  const Result<Driver> driver = load_driver();
  if (driver.ok()) GTEST_SKIP() << "this machine has a driver";
  EXPECT_EQ(driver.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(driver.status().message(), AllOf(HasSubstr("NVIDIA driver"), HasSubstr("libcuda.so.1")));
}

// Bug caught: an old driver that fails later, in an unrelated call.
TEST(CudaDriver, OldDriverIsRefused) {
  const int major = CUDA_VERSION / 1000;
  const Status status = open_status({.version = (major - 1) * 1000 + 80});
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr(std::to_string(major - 1) + ".8"),
                                      HasSubstr("CUDA " + std::to_string(major) + ".0 or newer")));
  EXPECT_TRUE(open_status({.version = major * 1000}).ok()) << "drivers serve all CUDA of their major version";
}

// Bug caught: an ordinal out of range that reaches the driver. The driver's error does not name the number.
TEST(CudaDriver, OrdinalOutOfRangeIsRefused) {
  for (const int ordinal : {-1, 2, 100}) {
    const Status status = open_status({.devices = 2}, ordinal);
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("cuda:" + std::to_string(ordinal)), HasSubstr("cuda:0 to cuda:1")));
  }
  EXPECT_TRUE(open_status({.devices = 2}, 1).ok());
  EXPECT_EQ(open_status({.devices = 0}).code(), StatusCode::kNotFound);
}

// Bug caught: an internal error instead of kNotFound if the driver finds no GPU.
TEST(CudaDriver, NoGpuIsNotFound) {
  FakeDriver fake;
  fake.fail("cuInit", 1, CUDA_ERROR_NO_DEVICE);
  const Status status = CudaDevice::create({.driver = &fake.table()}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("no GPU"));
}

// Bug caught: an old GPU that is accepted and only fails later with "no kernel image is available".
TEST(CudaDriver, OldGpuIsRefused) {
  for (const int capability : {50, 61, 75}) {
    const Status status = open_status({.compute_capability = capability});
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
    const std::string found = std::to_string(capability / 10) + "." + std::to_string(capability % 10);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("Fake GPU"), HasSubstr(found), HasSubstr("8.0 or newer")));
  }
  for (const int capability : {80, 89, 90, 120}) EXPECT_TRUE(open_status({.compute_capability = capability}).ok());
}

// Bug caught: a device whose description a user could not recognise.
TEST(CudaDriver, DeviceDescribesItself) {
  const FakeDriver fake({.compute_capability = 89});
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  const DeviceProperties& properties = device->properties();
  EXPECT_EQ(properties.type, "cuda");
  EXPECT_FALSE(properties.on_host);
  EXPECT_EQ(properties.name, "Fake GPU, 7 multiprocessors, 0.2 GiB");
  EXPECT_EQ(properties.memory_bytes, 256 << 20);
  EXPECT_EQ(properties.threads, 7);
  EXPECT_EQ(properties.compute_capability, 89);
  EXPECT_TRUE(properties.has_native_bf16);
}

// Bug caught: a driver object that is leaked.
TEST(CudaDriver, NoObjectIsLeaked) {
  const FakeDriver fake;
  {
    const std::unique_ptr<CudaDevice> device = open_fake(fake);
    const int before = fake.live_objects();
    const Status used = use(*device);
    EXPECT_TRUE(used.ok()) << used.to_string();
    EXPECT_EQ(fake.live_objects(), before);
    EXPECT_EQ(device->available_bytes(), device->properties().memory_bytes);
  }
  EXPECT_EQ(fake.live_objects(), 0);
}

// Returns whether use() may succeed although the nth call of `function` failed.
bool may_fail_in_silence(const std::string& function, int nth) {
  // Destructors ignore errors of these calls, and available_bytes() returns 0 if it cannot read the number.
  static const std::set<std::string> kReleases{"cuMemFree",
                                               "cuMemFreeHost",
                                               "cuMemHostUnregister",
                                               "cuMemUnmap",
                                               "cuMemRelease",
                                               "cuMemAddressFree",
                                               "cuStreamDestroy",
                                               "cuEventDestroy",
                                               "cuGraphDestroy",
                                               "cuMemGetInfo",
                                               "cuGraphExecDestroy",
                                               "cuDevicePrimaryCtxRelease",
                                               "cuThreadExchangeStreamCaptureMode"};
  // use() makes the first call of cuStreamSynchronize. The destructors of the stream and of the side stream make the
  // later calls and ignore their errors.
  if (function == "cuStreamSynchronize") return nth >= 2;
  if (function == "cuDeviceGetAttribute") return nth > 4;  // arenas work without these attributes
  return kReleases.contains(function);
}

// Bug caught: a result that is ignored, an error that does not name the failed call, and objects that leak after an
// error. Every call of every function fails once with each of three results.
TEST(CudaDriver, EveryCallMayFail) {
  std::vector<std::string> functions;
#define TESSERA_FUNCTION_NAME(name) functions.emplace_back(#name);
  TESSERA_DRIVER_FUNCTIONS(TESSERA_FUNCTION_NAME)
#undef TESSERA_FUNCTION_NAME
  struct Fault {
    CUresult result;
    StatusCode code;
  };
  int faults = 0;
  for (const Fault fault :
       {Fault{CUDA_ERROR_OUT_OF_MEMORY, StatusCode::kResourceExhausted},
        Fault{CUDA_ERROR_UNKNOWN, StatusCode::kInternal}, Fault{CUDA_ERROR_LAUNCH_FAILED, StatusCode::kDeviceLost}}) {
    for (const std::string& function : functions) {
      for (int nth = 1;; ++nth) {
        FakeDriver fake;
        fake.fail(function, nth, fault.result);
        Status status;
        {
          Result<std::unique_ptr<CudaDevice>> device = CudaDevice::create({.driver = &fake.table()});
          status = device.ok() ? use(**device) : device.status();
        }
        if (fake.faults() == 0) break;
        ++faults;
        SCOPED_TRACE(function + " " + std::to_string(nth));
        if (may_fail_in_silence(function, nth)) continue;
        EXPECT_EQ(status.code(), fault.code) << status.to_string();
        // The error for exhausted addresses has the same text as on the CPU, so it does not name the driver's function.
        const bool addresses = function == "cuMemAddressReserve" && fault.result == CUDA_ERROR_OUT_OF_MEMORY;
        EXPECT_THAT(status.message(), HasSubstr(addresses ? "addresses" : function));
        EXPECT_EQ(fake.live_objects(), 0);
      }
    }
  }
  EXPECT_GT(faults, 200);
}

// Bug caught: a lost device that keeps calling the driver and returns a different error each time.
TEST(CudaDriver, LostDeviceSaysSoAtOnce) {
  FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Allocation> memory = device->allocate(64, "x").value();
  std::unique_ptr<Arena> arena = device->create_arena({.reserve_bytes = 64, .name = "arena"}).value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::unique_ptr<Event> event = device->create_event().value();
  ASSERT_TRUE(stream->begin_recording("piece").ok());
  std::unique_ptr<RecordedGraph> graph = stream->end_recording().value();
  fake.fail("cuStreamSynchronize", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_THAT(stream->synchronize().message(), AllOf(HasSubstr("cuStreamSynchronize"), HasSubstr("main")));

  std::byte host{};
  const int calls = fake.calls();
  const std::vector<Status> later{device->allocate(64, "y").status(),
                                  device->allocate_host(64, "y").status(),
                                  device->create_arena({.reserve_bytes = 64, .name = "y"}).status(),
                                  arena->grow(64),
                                  device->create_stream("y").status(),
                                  device->create_event().status(),
                                  stream->upload(memory->data(), &host, 1),
                                  stream->download(&host, memory->data(), 1),
                                  stream->copy(memory->data(), memory->data() + 1, 1),
                                  stream->copy_rows(memory->data(), memory->data() + 8, 1, 16, 2),
                                  stream->fill(memory->data(), 1, 1),
                                  stream->record(*event),
                                  stream->wait(*event),
                                  stream->synchronize(),
                                  event->synchronize(),
                                  as_cuda(*stream).begin_launch("kernel"),
                                  stream->begin_recording("piece"),
                                  graph->launch(*stream)};
  for (const Status& status : later) {
    EXPECT_EQ(status.code(), StatusCode::kDeviceLost) << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("was lost before"), HasSubstr("cuStreamSynchronize")));
  }
  EXPECT_FALSE(stream->recording());
  EXPECT_EQ(fake.calls(), calls) << "no call reaches the driver";
}

// Bug caught: a kernel's fatal error that is treated as temporary because the runtime API reports it.
TEST(CudaDriver, LaunchErrorsAreReported) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  const Status passing = as_cuda(*stream).launch_error("softmax", cudaErrorInvalidConfiguration);
  EXPECT_EQ(passing.code(), StatusCode::kInternal);
  EXPECT_THAT(passing.message(), AllOf(HasSubstr("softmax"), HasSubstr("cudaErrorInvalidConfiguration")));
  EXPECT_TRUE(as_cuda(*stream).begin_launch("softmax").ok());
  EXPECT_EQ(as_cuda(*stream).launch_error("softmax", cudaErrorIllegalAddress).code(), StatusCode::kDeviceLost);
  EXPECT_THAT(as_cuda(*stream).begin_launch("next").message(), AllOf(HasSubstr("next"), HasSubstr("softmax")));
}

// Bug caught: an invalidated capture that blocks all later recordings.
TEST(CudaDriver, InvalidCaptureIsDropped) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Allocation> memory = device->allocate(64, "x").value();
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  ASSERT_TRUE(stream->begin_recording("piece 3").ok());
  ASSERT_TRUE(stream->fill(memory->data(), 1, 64).ok());
  // A library that allocates memory itself makes this call.
  CUdeviceptr address = 0;
  EXPECT_EQ(fake.table().cuMemAlloc(&address, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_FALSE(stream->fill(memory->data(), 1, 64).ok());
  const Status status = stream->end_recording().status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("piece 3"), HasSubstr("cuStreamEndCapture")));
  EXPECT_FALSE(stream->recording());
  ASSERT_TRUE(stream->begin_recording("piece 4").ok());
  EXPECT_TRUE(stream->end_recording().ok());
}

// Bug caught: memory freed during a capture, so that the driver invalidates the capture; or memory that is never freed.
TEST(CudaDriver, FreeingWaitsForTheRecordingToEnd) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  std::unique_ptr<Stream> other = device->create_stream("other").value();
  std::unique_ptr<Event> event = device->create_event().value();
  const int before = fake.live_objects();
  std::unique_ptr<Allocation> memory = device->allocate(64, "x").value();
  std::unique_ptr<Arena> arena = device->create_arena({.reserve_bytes = 64, .name = "arena"}).value();
  ASSERT_TRUE(arena->grow(64).ok());
  for (const bool abandon : {false, true}) {
    ASSERT_TRUE(stream->begin_recording("piece").ok());
    const int live = fake.live_objects();
    other.reset();
    event.reset();
    if (abandon) {
      memory.reset();
      arena.reset();
    }
    EXPECT_EQ(fake.live_objects(), live);
    if (abandon) {
      stream->abandon_recording();
    } else {
      const Result<std::unique_ptr<RecordedGraph>> graph = stream->end_recording();
      EXPECT_TRUE(graph.ok()) << "streams and events are no memory: " << graph.status().to_string();
    }
  }
  EXPECT_EQ(fake.live_objects(), before - 2 - 1 - static_cast<int>(StagingRing::kSegments));
}

// Bug caught: an extra driver call for each launch, or a thread that launches into another device's context.
TEST(CudaDriver, ContextIsSetOncePerThread) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  const std::unique_ptr<CudaDevice> second = open_fake(fake);
  std::unique_ptr<Stream> stream = device->create_stream("main").value();
  int calls = fake.calls();
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(as_cuda(*stream).begin_launch("kernel").ok());
  EXPECT_EQ(fake.calls(), calls);
  std::thread([&] {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(as_cuda(*stream).begin_launch("kernel").ok());
  }).join();
  EXPECT_EQ(fake.calls(), calls + 1);
  EXPECT_TRUE(second->make_current().ok());
  EXPECT_TRUE(as_cuda(*stream).begin_launch("kernel").ok());
  EXPECT_EQ(fake.calls(), calls + 3);
}

// Bug caught: an arena that fails if the system refuses RDMA or exports, or that requests them again at each growth.
TEST(CudaDriver, ArenaWorksWithoutRefusedAttributes) {
  for (const bool rdma : {true, false}) {
    for (const bool descriptors : {true, false}) {
      const FakeDriver fake({.takes_rdma = rdma, .takes_file_descriptors = descriptors});
      const std::unique_ptr<CudaDevice> device = open_fake(fake);
      std::unique_ptr<VmmArena> arena = VmmArena::create(*device, {.reserve_bytes = 16 << 20, .name = "arena"}).value();
      ASSERT_TRUE(arena->grow(1).ok());
      EXPECT_EQ(arena->exportable(), descriptors);
      EXPECT_EQ(arena->rdma_capable(), rdma && descriptors);
      const int calls = fake.calls("cuMemCreate");
      ASSERT_TRUE(arena->grow(3 << 20).ok());
      EXPECT_EQ(fake.calls("cuMemCreate"), calls + 1);
    }
  }
}

// Bug caught: an arena of several pieces of physical memory, although ArenaOptions::single_handle asks for one piece.
TEST(CudaDriver, SingleHandleIsOnePiece) {
  const FakeDriver fake;
  const std::unique_ptr<CudaDevice> device = open_fake(fake);
  std::unique_ptr<Arena> arena =
      device->create_arena({.reserve_bytes = 9 << 20, .name = "exchange", .single_handle = true}).value();
  EXPECT_TRUE(arena->grow(1).ok());
  EXPECT_TRUE(arena->grow(9 << 20).ok());
  EXPECT_EQ(fake.calls("cuMemCreate"), 1);
  EXPECT_EQ(arena->size(), std::size_t{10} << 20);
}

}  // namespace
}  // namespace tessera
