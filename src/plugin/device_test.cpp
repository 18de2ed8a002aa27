// Catches: a plugin's device that breaks the device contract; memory that leaks when an allocation fails; success that
// is reported without an object; pieces that do not run on a device that records no graphs; a note that does not say
// why the device records no graphs.
#include "tessera/plugin/device.h"

#include <dlfcn.h>

#include "tessera/device/testing/conformance.h"
#include "tessera/plugin/load.h"

namespace tessera::plugin {
namespace {

using ::testing::HasSubstr;

const std::string kFile = std::string(TESSERA_TEST_PLUGINS) + "/host_device.so";

const std::shared_ptr<const Registry>& registry() {
  static const std::shared_ptr<const Registry> loaded = [] {
    auto made = load_plugins({kFile});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.value();
  }();
  return loaded;
}

Result<std::unique_ptr<Device>> open(const char* name) { return registry()->devices.open(name); }

}  // namespace
}  // namespace tessera::plugin

namespace tessera {
namespace {

INSTANTIATE_TEST_SUITE_P(Plugin, DeviceConformance,
                         ::testing::Values(DeviceFactory{"plugin", [] { return plugin::open("host_test"); }},
                                           DeviceFactory{"fixed_arenas", [] { return plugin::open("host_test:2"); }}),
                         device_factory_name);

}  // namespace
}  // namespace tessera

namespace tessera::plugin {
namespace {

template <class F>
F* function_of(const char* name) {
  (void)registry();
  void* library = dlopen(kFile.c_str(), RTLD_NOW | RTLD_NOLOAD);
  auto* function = reinterpret_cast<F*>(dlsym(library, name));
  dlclose(library);  // the registry keeps the library loaded
  return function;
}

TEST(PluginDevice, ReportsItsProperties) {
  const std::unique_ptr<Device> device = open("host_test").value();
  EXPECT_EQ(device->properties().type, "host_test");
  EXPECT_EQ(device->properties().name, "host memory");
  EXPECT_EQ(device->properties().block_bytes, 4096);
  EXPECT_TRUE(device->properties().arenas_grow);
  EXPECT_FALSE(open("host_test:2").value()->properties().arenas_grow);
  EXPECT_THAT(open("host_test:7").status().message(), HasSubstr("device host_test: this machine has three of them"));
  EXPECT_EQ(open("host_test:7").status().code(), StatusCode::kNotFound);
}

constexpr std::size_t kBytes = 16;

class Fill final : public BoundOp {
 public:
  Fill(DeviceAddress to, std::uint8_t value) : to_(to), value_(value) {}
  Status enqueue(Stream& on) const override { return on.fill(to_, value_, kBytes); }

 private:
  DeviceAddress to_;
  std::uint8_t value_;
};

std::vector<std::unique_ptr<BoundOp>> fills(DeviceAddress to, const std::vector<std::uint8_t>& values) {
  std::vector<std::unique_ptr<BoundOp>> ops;
  for (const std::uint8_t value : values) ops.push_back(std::make_unique<Fill>(to, value));
  return ops;
}

Program program_of(std::size_t instructions) {
  Program program;
  for (std::size_t i = 0; i < instructions; ++i) program.instructions.push_back({.call = {.op = "fill"}, .kernel = {}});
  return program;
}

std::array<std::uint8_t, kBytes> content(Stream& stream, DeviceAddress from) {
  std::array<std::uint8_t, kBytes> bytes{};
  EXPECT_TRUE(stream.download(bytes.data(), from, kBytes).ok());
  EXPECT_TRUE(stream.synchronize().ok());
  return bytes;
}

// Makes each of four requests for memory fail in turn: two allocations, and an arena's creation and growth. The error
// must name the allocation or arena, and nothing may leak.
TEST(PluginDevice, AFailedAllocationLeaksNothing) {
  const auto allow = function_of<void(int)>("device_allow");
  const auto live = function_of<int()>("device_live");
  const int before = live();
  const auto take_all = []() -> Status {
    const std::unique_ptr<Device> device = TRY(open("host_test"));
    const std::unique_ptr<Allocation> first = TRY(device->allocate(64, "first"));
    const std::unique_ptr<Arena> arena = TRY(device->create_arena({.reserve_bytes = 8192, .name = "arena"}));
    const std::unique_ptr<HostAllocation> staging = TRY(device->allocate_host(64, "staging"));
    const std::unique_ptr<Allocation> second = TRY(device->allocate(64, "second"));
    TRY(arena->grow(4096));
    return ok_status();
  };
  const std::vector<std::string> names = {"first", "arena", "second", "arena"};
  for (int n = 0; n < 4; ++n) {
    allow(n);
    const Status status = take_all();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << n;
    EXPECT_THAT(status.message(), HasSubstr("'" + names[static_cast<std::size_t>(n)] + "'"));
    EXPECT_THAT(status.message(), HasSubstr("no memory is left"));
    EXPECT_EQ(live(), before) << n;
  }
  allow(-1);
  EXPECT_TRUE(take_all().ok());
  EXPECT_EQ(live(), before);
}

// A plugin that reports success must also return an object. If it does not, the call must fail, and no free function
// may get null.
TEST(PluginDevice, SuccessWithoutAnObjectIsAnError) {
  const auto make_nothing = function_of<void(int)>("device_make_nothing");
  const auto live = function_of<int()>("device_live");
  const int before = live();
  {
    const std::unique_ptr<Device> device = open("host_capture").value();
    const std::unique_ptr<Stream> stream = device->create_stream("main").value();
    const std::unique_ptr<Allocation> memory = device->allocate(kBytes, "test").value();
    const Program program = program_of(1);
    const BoundProgram bound(program, {}, fills(memory->data(), {7}));
    const PiecewiseBackend& backend = registry()->piecewise_backends.of("host_capture");

    make_nothing(1);
    const Status no_stream = device->create_stream("second").status();
    const Status no_event = device->create_event(EventKind::kTime).status();
    const Status no_arena = device->create_arena({.reserve_bytes = kBytes, .name = "arena"}).status();
    ASSERT_TRUE(stream->begin_recording("part").ok());
    const Status no_recording = stream->end_recording().status();
    const Status no_capture = backend.capture(bound, *stream, "piece").status();
    make_nothing(0);
    EXPECT_EQ(no_stream.code(), StatusCode::kInternal);
    EXPECT_THAT(no_stream.message(), HasSubstr("'second': the plugin reported success and gave no stream"));
    EXPECT_THAT(no_event.message(), HasSubstr("the plugin reported success and gave no event"));
    EXPECT_EQ(no_arena.code(), StatusCode::kInternal);
    EXPECT_THAT(no_arena.message(), HasSubstr("'arena': the plugin reported success and gave no arena"));
    EXPECT_THAT(no_recording.message(), HasSubstr("'main': the plugin reported success and gave no graph"));
    EXPECT_THAT(no_capture.message(), HasSubstr("capture of 'piece': the plugin reported success and gave no graph"));
    EXPECT_TRUE(backend.capture(bound, *stream, "piece").ok()) << "the stream records again";
  }
  EXPECT_EQ(live(), before);
}

TEST(PluginDevice, AStreamIsFreedAfterItsWorkHasEnded) {
  const auto freed_busy = function_of<int()>("device_streams_freed_busy");
  const std::unique_ptr<Device> device = open("host_test").value();
  const std::unique_ptr<Allocation> memory = device->allocate(kBytes, "test").value();
  const int before = freed_busy();
  {
    const std::unique_ptr<Stream> stream = device->create_stream("main").value();
    ASSERT_TRUE(stream->fill(memory->data(), 1, kBytes).ok());
  }
  EXPECT_EQ(freed_busy(), before);
}

TEST(PluginDevice, RunsPiecesAndSaysSoWithoutRecordedGraphs) {
  const PiecewiseBackend& backend = registry()->piecewise_backends.of("host_test");
  {
    const std::unique_ptr<Device> recording = open("host_test").value();
    EXPECT_EQ(backend.note(), "");
  }
  const std::unique_ptr<Device> device = open("host_test:1").value();
  EXPECT_EQ(backend.note(), "device host_test records no graphs, this one forgets: pieces run operator by operator");
  const std::unique_ptr<Stream> stream = device->create_stream("main").value();
  EXPECT_EQ(stream->begin_recording("piece").code(), StatusCode::kUnimplemented);

  const std::unique_ptr<Allocation> memory = device->allocate(kBytes, "test").value();
  const Program program = program_of(1);
  const BoundProgram bound(program, {}, fills(memory->data(), {7}));
  const std::unique_ptr<RecordedGraph> piece = backend.capture(bound, *stream, "piece").value();
  EXPECT_EQ(piece->stats().nodes, 1);
  for (int launch = 0; launch < 2; ++launch) {
    ASSERT_TRUE(stream->fill(memory->data(), 0, kBytes).ok());
    ASSERT_TRUE(piece->launch(*stream).ok());
    EXPECT_THAT(content(*stream, memory->data()), ::testing::Each(7));
  }
}

TEST(PluginDevice, ItsOwnCaptureReplacesTheRecording) {
  const PiecewiseBackend& backend = registry()->piecewise_backends.of("host_capture");
  const std::unique_ptr<Device> device = open("host_capture").value();
  const std::unique_ptr<Stream> stream = device->create_stream("main").value();
  const std::unique_ptr<Allocation> memory = device->allocate(kBytes, "test").value();
  const Program program = program_of(2);
  const BoundProgram bound(program, {}, fills(memory->data(), {7, 9}));
  ASSERT_TRUE(stream->fill(memory->data(), 1, kBytes).ok());
  const std::unique_ptr<RecordedGraph> piece = backend.capture(bound, *stream, "piece").value();
  EXPECT_THAT(content(*stream, memory->data()), ::testing::Each(1)) << "nothing runs meanwhile";
  EXPECT_EQ(piece->stats().nodes, 2);
  ASSERT_TRUE(piece->launch(*stream).ok());
  EXPECT_THAT(content(*stream, memory->data()), ::testing::Each(7)) << "this capture has the steps in reverse";

  // A step of this program fails. The failure must not affect captures of other programs.
  const BoundProgram broken(program, {}, fills({}, {7, 9}));
  const Status status = backend.capture(broken, *stream, "broken piece").status();
  EXPECT_THAT(status.message(), HasSubstr("capture of 'broken piece'"));
  EXPECT_TRUE(backend.capture(bound, *stream, "piece").ok());
}

}  // namespace
}  // namespace tessera::plugin
