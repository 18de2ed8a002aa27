// Catches: device addresses that are treated as pointers in views, the arena's plan, the workspace, bound addresses or
// debug checks. On the device of this test, addresses are handles and not pointers, and the arena is only as large as
// needed.
#include "tessera/device/testing/handle_device.h"

#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/ir/text.h"
#include "tessera/piecewise/executable.h"
#include "tessera/piecewise/splitter.h"

namespace tessera {
namespace {

using testing::HandleDevice;
using testing::HandleStream;

// Computes y = 2 x + 1. The kernel writes an intermediate result to the workspace.
class TwiceOp final : public BoundOp {
 public:
  explicit TwiceOp(const BindArgs& args) : x_(args.operands[0]), y_(args.results[0]), scratch_(args.workspace) {}
  Status enqueue(Stream& stream) const override {
    auto& mine = static_cast<HandleStream&>(stream);
    const auto find = [&](DeviceAddress address) {
      return reinterpret_cast<float*>(mine.device().resolve(address, static_cast<std::size_t>(x_.bytes())));
    };
    const float* x = find(x_.data);
    float* y = find(y_.data);
    float* scratch = find(scratch_);
    if (x == nullptr || y == nullptr || scratch == nullptr)
      return internal_error("an address is none of this device's");
    return mine.launch("twice", [x, y, scratch, n = x_.elements()] {
      for (std::int64_t i = 0; i < n; ++i) scratch[i] = 2 * x[i];
      for (std::int64_t i = 0; i < n; ++i) y[i] = scratch[i] + 1;
    });
  }

 private:
  TensorView x_;
  TensorView y_;
  DeviceAddress scratch_;
};

Result<std::vector<ir::Type>> same_type(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }
const ir::OpDecl kTwice{.name = "twice", .summary = "y = 2 x + 1", .operands = {{"x"}}, .infer = same_type};
const ir::OpDecl kCut{.name = "cut", .summary = "y = 2 x + 1", .operands = {{"x"}}, .infer = same_type};

Result<std::unique_ptr<BoundOp>> bind_twice(const BindArgs& args) { return std::make_unique<TwiceOp>(args); }
Result<std::size_t> scratch_bytes(const BindArgs& args) { return static_cast<std::size_t>(args.operands[0].bytes()); }

TEST(HandleDevice, RunsCapturesAndReplaysPieces) {
  const ir::OpTable ops({&kTwice, &kCut});
  const KernelTable kernels({{.op = "twice", .name = "handles", .bind = bind_twice, .workspace_bytes = scratch_bytes},
                             {.op = "cut", .name = "handles", .bind = bind_twice, .workspace_bytes = scratch_bytes}});
  const ir::Graph graph = *ir::parse_graph(R"(graph @g {
    input %x: f32[T, 4]
    %a: f32[T, 4] = twice(%x)
    %b: f32[T, 4] = cut(%a)
    %c: f32[T, 4] = twice(%b)
    return %c
  })",
                                           &ops);
  const std::unique_ptr<HandleDevice> device = HandleDevice::create().value();
  const std::unique_ptr<Stream> stream = device->create_stream("main").value();
  ir::Bucket largest;
  largest[ir::Symbol::kTokens] = 16;
  const std::unique_ptr<Allocation> x = device->allocate(16 * 4 * sizeof(float), "x").value();
  ExternalValues externals;
  externals.add("x", x->data());
  const ForwardContext context;
  KernelVariants warm;
  const std::unique_ptr<Compiler> compiler = make_eager_compiler({.device = *device, .ops = ops, .kernels = kernels});

  const std::vector<std::string> cuts{"cut"};
  // The first executable only computes how large the arenas must be. Its own arenas stay empty.
  std::unique_ptr<Arena> none = device->create_arena({.reserve_bytes = kDeviceAlignment, .name = "none"}).value();
  const auto make = [&](Arena& arena, Arena& workspace) {
    return *Executable::create(*split_graph(graph, ops, cuts), *compiler,
                               {.device = *device,
                                .stream = *stream,
                                .context = context,
                                .externals = externals,
                                .arena = arena,
                                .workspace = workspace,
                                .warm = warm},
                               {.largest = largest});
  };
  const MemoryNeed need = *make(*none, *none)->memory_need(largest);
  const auto arena =
      device->create_arena({.reserve_bytes = static_cast<std::size_t>(need.arena_bytes), .name = "arena"}).value();
  const auto workspace =
      device->create_arena({.reserve_bytes = static_cast<std::size_t>(need.workspace_bytes), .name = "scratch"})
          .value();
  const std::unique_ptr<Executable> executable = make(*arena, *workspace);

  for (const std::int64_t tokens : {16, 5}) {
    ir::Bucket bucket;
    bucket[ir::Symbol::kTokens] = tokens;
    ASSERT_TRUE(executable->bind(bucket).ok());
    for (const bool captured : {false, true}) {
      if (captured) {
        const Status status = executable->capture(bucket);
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
      std::vector<float> values(static_cast<std::size_t>(tokens) * 4);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + (captured ? 100.0f : 0.0f);
      ASSERT_TRUE(stream->upload(x->data(), values.data(), values.size() * sizeof(float)).ok());
      ASSERT_TRUE(executable->check_addresses(bucket).ok());
      const Status ran = captured ? executable->replay(bucket) : executable->run(bucket);
      ASSERT_TRUE(ran.ok()) << ran.to_string();
      std::vector<float> got(values.size());
      ASSERT_TRUE(stream->download(got.data(), executable->output(bucket, 0)->data, got.size() * sizeof(float)).ok());
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], 8 * values[i] + 7) << i;
    }
  }
  EXPECT_EQ(executable->num_captured(), 2);
}

}  // namespace
}  // namespace tessera
