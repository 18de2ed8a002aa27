// During a capture, a kernel must not allocate, free, synchronise, copy from or to the host, or initialise a library.
// Catches: a kernel that does so and is stopped only at the end of the recording, or not at all. Runs on the CPU and on
// the device that TESSERA_TEST_DEVICE names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/compile/eager.h"
#include "tessera/device/testing/environment.h"
#include "tessera/ir/text.h"
#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/device_registry.h"
#include "tessera/piecewise/executable.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The fault that the operator "misbehave" commits when it is enqueued, after it has copied its operand.
struct Deed {
  std::string name;
  std::function<Status(Device&, Stream&)> commit;
  std::string words;       // expected in the error
  bool swallowed = false;  // the kernel still returns ok
};
const Deed* deed = nullptr;
std::unique_ptr<Allocation> kept;

class Misbehaves final : public BoundOp {
 public:
  explicit Misbehaves(const BindArgs& args)
      : device_(args.device), from_(args.operands[0].data), to_(args.results[0]) {}
  Status enqueue(Stream& stream) const override {
    if (deed != nullptr) {
      const Status done = deed->commit(device_, stream);
      if (!done.ok() && !deed->swallowed) return done;
    }
    return stream.copy(to_.data, from_, static_cast<std::size_t>(to_.bytes()));
  }

 private:
  Device& device_;
  DeviceAddress from_;
  TensorView to_;
};

const ir::OpDecl kMisbehave{
    .name = "misbehave",
    .summary = "y = x",
    .operands = {{"x"}},
    .infer = [](const ir::OpSignature& s) -> Result<std::vector<ir::Type>> { return std::vector{s.operands[0]}; }};

const std::vector<Deed>& deeds() {
  static const std::vector<Deed> all = {
      {"Allocate", [](Device& d, Stream&) { return d.allocate(64, "scratch").status(); }, "allocation of 'scratch'"},
      {"AllocateHost", [](Device& d, Stream&) { return d.allocate_host(64, "staging").status(); }, "'staging'"},
      {"CreateStream", [](Device& d, Stream&) { return d.create_stream("second").status(); }, "'second'"},
      {"Synchronise", [](Device&, Stream& s) { return s.synchronize(); }, "synchronisation of stream 'main'"},
      {"Upload",
       [](Device&, Stream& s) {
         const int number = 7;
         return s.upload(kept->data(), &number, sizeof(number));
       },
       "upload on stream 'main'"},
      {"Download",
       [](Device&, Stream& s) {
         int number = 0;
         return s.download(&number, kept->data(), sizeof(number));
       },
       "download on stream 'main'"},
      {"ReadyALibrary", [](Device& d, Stream&) { return d.begin_initialisation("cuFast"); },
       "initialisation of 'cuFast'"},
      {"FreeAndSayNothing",
       [](Device&, Stream&) {
         kept = nullptr;
         return ok_status();
       },
       "'kept' was freed while it was open", true},
  };
  return all;
}

class CaptureGuard : public ::testing::TestWithParam<Deed> {
 protected:
  void SetUp() override {
    device_ = built_in_devices().open(testing::test_device_name()).value();
    stream_ = device_->create_stream("main").value();
    kept = device_->allocate(64, "kept").value();
  }
  void TearDown() override {
    deed = nullptr;
    kept = nullptr;
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_P(CaptureGuard, NamesOperatorPieceAndSize) {
  const ir::OpTable ops({&kMisbehave});
  const KernelTable kernels(
      {{.op = "misbehave", .name = "test", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
          return std::make_unique<Misbehaves>(args);
        }}});
  const ir::Graph graph = ir::parse_graph(R"(graph @guarded {
  input %x: f32[T, 4]
  %fine: f32[T, 4] = misbehave(%x)
  return %fine
})",
                                          &ops)
                              .value();
  const std::unique_ptr<Allocation> x = device_->allocate(8 * 16, "x").value();
  ExternalValues externals;
  externals.add("x", x->data());
  const std::unique_ptr<Arena> arena = device_->create_arena({.reserve_bytes = 1 << 24, .name = "arena"}).value();
  const std::unique_ptr<Arena> workspace =
      device_->create_arena({.reserve_bytes = 1 << 24, .name = "workspace"}).value();
  const ForwardContext context;
  KernelVariants warm;
  ir::Bucket bucket;
  bucket[ir::Symbol::kTokens] = 8;
  const std::unique_ptr<Executable> executable =
      Executable::create(split_graph(graph, ops, {}).value(),
                         *make_eager_compiler({.device = *device_, .ops = ops, .kernels = kernels}),
                         {.device = *device_,
                          .stream = *stream_,
                          .context = context,
                          .externals = externals,
                          .arena = *arena,
                          .workspace = *workspace,
                          .warm = warm},
                         {.largest = bucket})
          .value();
  ASSERT_TRUE(executable->bind(bucket).ok());

  deed = &GetParam();
  const Status captured = executable->capture(bucket);
  EXPECT_EQ(captured.code(), StatusCode::kFailedPrecondition) << captured.to_string();
  EXPECT_THAT(captured.to_string(),
              AllOf(HasSubstr(GetParam().words), HasSubstr("operator misbehave (%fine)"), HasSubstr("piece 0 at T=8")));
  EXPECT_FALSE(stream_->recording());
  EXPECT_FALSE(executable->captured(bucket));

  // The fault has no lasting effect. Once the operator behaves, it is captured and replayed.
  deed = nullptr;
  ASSERT_TRUE(executable->capture(bucket).ok());
  const std::vector<float> given = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16,
                                    17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32};
  ASSERT_TRUE(stream_->upload(x->data(), given.data(), 128).ok());
  ASSERT_TRUE(executable->replay(bucket).ok());
  std::vector<float> made(given.size());
  ASSERT_TRUE(stream_->download(made.data(), executable->output(bucket, 0).value().data, 128).ok());
  ASSERT_TRUE(stream_->synchronize().ok());
  EXPECT_EQ(made, given);
}
INSTANTIATE_TEST_SUITE_P(Deeds, CaptureGuard, ::testing::ValuesIn(deeds()),
                         [](const auto& parameter) { return parameter.param.name; });

}  // namespace
}  // namespace tessera
