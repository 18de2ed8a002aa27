// Catches: executables that share an arena and overwrite values that another executable, or another size of the same
// executable, still needs. A forward runs the body and then the head, as in a runner. Its result is compared with the
// result of a run on separate memory. The two results must be equal with a correct memory plan, and must differ with a
// plan that a test has made wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using testing::Bytes;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::tokens;

constexpr std::int64_t kLargest = 24;
constexpr std::int64_t kHidden = kLargest * 8 * 4;  // size of the body's output in bytes

// Value %a is read only through its view, after another value was made.
constexpr const char* kBody = R"(graph @body {
  input %x: f32[T, 8]
  weight %w1: f32[8, 8]
  %a: f32[T, 8] = linear(%x, %w1)
  %v: f32[2*T, 4] = reshape(%a) {shape = "2*T, 4"}
  %b: f32[T, 8] = through_scratch(%x)
  %back: f32[T, 8] = reshape(%v) {shape = "T, 8"}
  %hidden: f32[T, 8] = add(%back, %b)
  return %hidden
})";
constexpr const char* kHead = R"(graph @head {
  input %hidden: f32[T, 8]
  weight %w2: f32[16, 8]
  %h: f32[T, 16] = matmul(%hidden, %w2)
  %logits: f32[T, 16] = scale(%h) {factor = 0.5}
  return %logits
})";
enum : std::size_t { kA, kB, kHiddenRange };  // indices of the body's live ranges

// The operator through_scratch(x) returns 2 x. Its kernel writes an intermediate result to the workspace.
Result<std::vector<ir::Type>> type_of_operand(const ir::OpSignature& s) { return std::vector{s.operands[0]}; }
Result<std::size_t> bytes_of_operand(const BindArgs& args) {
  return static_cast<std::size_t>(args.operands[0].bytes());
}
Result<std::unique_ptr<BoundOp>> bind_through_scratch(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  float* y = args.results[0].as<float>();
  auto* scratch = reinterpret_cast<float*>(args.workspace.raw());
  const std::int64_t n = args.operands[0].elements();
  return make_cpu_op("through_scratch", [=] {
    for (std::int64_t i = 0; i < n; ++i) scratch[i] = 2 * x[i];
    for (std::int64_t i = 0; i < n; ++i) y[i] = scratch[i];
  });
}
const ir::OpDecl kThroughScratch{
    .name = "through_scratch", .summary = "2 x", .operands = {{"x"}}, .infer = type_of_operand};

const ir::OpTable& ops() {
  static const ir::OpTable table({&kAdd, &kScale, &kReshape, &kLinear, &testing::test_ops::kMatmul, &kThroughScratch});
  return table;
}
const KernelTable& kernels() {
  static const KernelTable table(
      {kAddCpu,
       kScaleCpu,
       kLinearCpu,
       {.op = "matmul", .name = "test", .bind = testing::test_ops::bind_matmul},
       {.op = "through_scratch", .name = "test", .bind = bind_through_scratch, .workspace_bytes = bytes_of_operand}});
  return table;
}

struct Planners {
  Planner body = plan_memory;
  Planner head = plan_memory;
  bool one_memory = false;  // whether the arena is used as workspace too
};

// The body and head of one runner, with their shared memory.
class Forwards {
 public:
  Forwards(const Planners& planners, MemoryPlanKind kind) : isolated_(kind == MemoryPlanKind::kIsolated) {
    for (const auto& [name, bytes] :
         {std::pair("x", kLargest * 32), std::pair("w1", std::int64_t{256}), std::pair("w2", std::int64_t{512})}) {
      memory_.push_back(device_->allocate(static_cast<std::size_t>(bytes), name).value());
      externals_.add(name, memory_.back()->data());
      const Bytes content = testing::random_bytes(ir::DType::kFloat32, static_cast<std::size_t>(bytes), name[1]);
      EXPECT_TRUE(stream_->upload(memory_.back()->data(), content.data(), content.size()).ok());
    }
    memory_.push_back(device_->allocate(static_cast<std::size_t>(kHidden), "hidden").value());
    hidden_ = isolated_ ? memory_.back()->data() : arena_->base();
    externals_.add("hidden", hidden_);
    Arena& workspace = planners.one_memory ? *arena_ : *workspace_;
    body_ = make(kBody, {.largest = tokens(kLargest), .memory = kind, .planner = planners.body}, workspace);
    head_ =
        make(kHead, {.largest = tokens(kLargest), .memory = kind, .reserved_bytes = kHidden, .planner = planners.head},
             workspace);
  }

  Executable& body() { return *body_; }
  Arena& arena() { return *arena_; }

  Status bind(std::int64_t size) {
    for (Executable* executable : {body_.get(), head_.get()}) {
      TRY(executable->bind(tokens(size)));
      TRY(executable->capture(tokens(size)));
    }
    return ok_status();
  }
  Bytes forward(std::int64_t size) {
    // Each size has different input data, so that data left by an earlier forward are wrong for a later one.
    const Bytes x = testing::random_bytes(ir::DType::kFloat32, kLargest * 32, static_cast<std::uint64_t>(size));
    EXPECT_TRUE(stream_->upload(memory_.front()->data(), x.data(), x.size()).ok());
    EXPECT_TRUE(body_->replay(tokens(size)).ok());
    if (isolated_) {
      const OutputView hidden = body_->output(tokens(size), 0).value();
      EXPECT_TRUE(stream_->copy(hidden_, hidden.data, static_cast<std::size_t>(hidden.bytes())).ok());
    }
    EXPECT_TRUE(head_->replay(tokens(size)).ok());
    const OutputView logits = head_->output(tokens(size), 0).value();
    Bytes bytes(static_cast<std::size_t>(logits.bytes()));
    EXPECT_TRUE(stream_->download(bytes.data(), logits.data, bytes.size()).ok());
    EXPECT_TRUE(stream_->synchronize().ok());
    return bytes;
  }

 private:
  std::unique_ptr<Executable> make(const char* text, ExecutableOptions options, Arena& workspace) {
    const ExecutionEnvironment environment{.device = *device_,
                                           .stream = *stream_,
                                           .context = context_,
                                           .externals = externals_,
                                           .arena = *arena_,
                                           .workspace = workspace,
                                           .warm = warm_};
    return Executable::create(split_graph(testing::parse(text, ops()), ops(), {}).value(), *compiler_, environment,
                              std::move(options))
        .value();
  }

  bool isolated_;
  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Compiler> compiler_ = make_eager_compiler({.device = *device_, .ops = ops(), .kernels = kernels()});
  std::unique_ptr<Stream> stream_ = device_->create_stream("main").value();
  std::unique_ptr<Arena> arena_ = device_->create_arena({.reserve_bytes = 1 << 26, .name = "arena"}).value();
  std::unique_ptr<Arena> workspace_ = device_->create_arena({.reserve_bytes = 1 << 26, .name = "workspace"}).value();
  std::vector<std::unique_ptr<Allocation>> memory_;
  ForwardContext context_;
  ExternalValues externals_;
  KernelVariants warm_;
  DeviceAddress hidden_;  // address at which the head reads the body's output
  std::unique_ptr<Executable> body_;
  std::unique_ptr<Executable> head_;
};

const std::vector<std::int64_t> kSizes = {kLargest, 9, 1};

// Returns the sizes at which the forward differs from a forward on separate memory, after all sizes were captured.
std::vector<std::int64_t> differing_sizes(const Planners& planners) {
  Forwards shared(planners, MemoryPlanKind::kPlanned);
  Forwards alone({}, MemoryPlanKind::kIsolated);
  std::vector<std::int64_t> differing;
  for (const std::int64_t size : kSizes) {
    EXPECT_TRUE(shared.bind(size).ok());
    EXPECT_TRUE(alone.bind(size).ok());
  }
  for (const std::int64_t size : kSizes)
    if (shared.forward(size) != alone.forward(size)) differing.push_back(size);
  return differing;
}

TEST(SharedArena, TheRealPlansDifferNowhere) { EXPECT_THAT(differing_sizes({}), IsEmpty()); }

TEST(SharedArena, AViewsBaseThatDiesEarlyIsCaught) {
  // Step 0 makes %a, and later steps read %a only through its view.
  const Planner early = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    std::vector<LiveRange> changed(ranges.begin(), ranges.end());
    EXPECT_GT(changed[kA].last, 0) << "the real range";
    changed[kA].last = 0;
    return plan_memory(changed);
  };
  EXPECT_THAT(differing_sizes({.body = early}), ElementsAre(kLargest, 9, 1));
}

TEST(SharedArena, OutputsMovedBetweenSizesAreCaught) {
  const Planner moves = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    if (ranges[kHiddenRange].bytes == kHidden) return plan;
    plan.offsets[kHiddenRange] = (plan.size_bytes + 255) / 256 * 256;
    plan.size_bytes = plan.offsets[kHiddenRange] + ranges[kHiddenRange].bytes;
    return plan;
  };
  EXPECT_THAT(differing_sizes({.body = moves}), ElementsAre(9, 1));
}

TEST(SharedArena, AHeadThatIgnoresWhatIsReservedIsCaught) {
  const Planner ignores = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges.first(ranges.size() - 1)));  // the last range is the reserved one
    plan.offsets.push_back(0);
    return plan;
  };
  EXPECT_THAT(differing_sizes({.head = ignores}), ElementsAre(9, 1)) << "the largest value does not fit there";
}

TEST(SharedArena, AHeadOverOneSizesReservedBytesIsCaught) {
  // For 9 rows, this planner places the head's values of 9 · 16 floats at offset 0, over the bytes that are reserved
  // for the body's output.
  const Planner overlaps = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i)
      if (ranges[i].bytes == 9 * 16 * 4) plan.offsets[i] = 0;
    return plan;
  };
  EXPECT_THAT(differing_sizes({.head = overlaps}), ElementsAre(9));
}

TEST(SharedArena, AWorkspaceInTheArenaIsCaught) {
  // Places %a at the start of the arena, where through_scratch writes its scratch while %a is live. The body's output
  // lies elsewhere, so the scratch does not damage it.
  const Planner low = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    plan.offsets[kA] = 0;
    return plan;
  };
  EXPECT_THAT(differing_sizes({.body = low, .one_memory = true}), ElementsAre(kLargest, 9, 1));
  EXPECT_THAT(differing_sizes({.body = low}), IsEmpty()) << "with a workspace of its own the same plan is sound";
}

// A smaller size may need more memory than the largest size. Then the arena must grow, and earlier captures must stay
// valid.
TEST(SharedArena, ASmallerSizeMayNeedMore) {
  const Planner spread = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    if (ranges[kHiddenRange].bytes == kHidden) return plan;
    for (std::size_t i = 0; i < ranges.size(); ++i)
      if (ranges[i].fixed_offset < 0) plan.offsets[i] += 1 << 20;
    plan.size_bytes += 1 << 20;
    return plan;
  };
  EXPECT_THAT(differing_sizes({.body = spread}), IsEmpty());
  Forwards forwards({.body = spread}, MemoryPlanKind::kPlanned);
  ASSERT_TRUE(forwards.bind(kLargest).ok());
  const DeviceAddress base = forwards.arena().base();
  const std::size_t before = forwards.arena().size();
  ASSERT_TRUE(forwards.bind(9).ok());
  EXPECT_GT(forwards.arena().size(), before);
  EXPECT_EQ(forwards.arena().base(), base);
}

// If a plan declares fewer bytes than it uses, bind() must fail, because kernels would write past the end of the arena.
TEST(SharedArena, APlanBeyondItsOwnSizeIsRefused) {
  const Planner understates = [](std::span<const LiveRange> ranges) -> Result<MemoryPlan> {
    MemoryPlan plan = TRY(plan_memory(ranges));
    if (ranges[kHiddenRange].bytes < kHidden) plan.size_bytes /= 2;
    return plan;
  };
  Forwards forwards({.body = understates}, MemoryPlanKind::kPlanned);
  EXPECT_TRUE(forwards.body().bind(tokens(kLargest)).ok());
  const Status refused = forwards.body().bind(tokens(9));
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_THAT(refused.message(), HasSubstr("outside the plan's"));
  EXPECT_FALSE(forwards.body().bound(tokens(9)));
}

}  // namespace
}  // namespace tessera
