// Catches: kernels that are bound to wrong addresses, sizes or attributes; a step that is left out or in the wrong
// order; scratch memory that is too small; graphs that keep data instead of addresses; and errors that do not name the
// operator.
#include "tessera/compile/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/testing/fake_device.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/rows/elementwise.h"
#include "tessera/ops/rows/view.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::parse;
using testing::tokens;
using testing::ValueMemory;

// This graph computes y = 2 (x wᵀ + b) and z = y + r.
constexpr const char* kLinearText = R"(graph @g {
  input %x: f32[T, 3]
  input %r: f32[T, 2]
  weight %w: f32[2, 3]
  weight %b: f32[2]
  %lin: f32[T, 2] = linear(%x, %w, %b) {bias = true}
  %y: f32[T, 2] = scale(%lin) {factor = 2.0}
  %z: f32[T, 2] = add(%y, %r)
  return %z
})";

class ProgramTest : public ::testing::Test {
 protected:
  Result<Program> compile(std::string_view text, const KernelTable& kernels = cpu_kernels()) {
    return eager_program(parse(text, built_in_ops()), built_in_ops(), kernels);
  }

  // Binds the program with a workspace that is exactly as large as its instructions need.
  Result<BoundProgram> bind(const Program& program, const ValueMemory& values, std::int64_t size) {
    const std::size_t scratch = TRY(program.workspace_bytes(tokens(size), *device_, context_));
    workspaces_.push_back(TRY(device_->allocate(scratch, "workspace")));
    return program.bind(values.target(tokens(size), context_, workspaces_.back()->data()));
  }

  Status bind_and_enqueue(const Program& program, const ValueMemory& values, std::int64_t size) {
    return TRY(bind(program, values, size)).enqueue(*stream_);
  }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::vector<std::unique_ptr<Allocation>> workspaces_;
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  ForwardContext context_;
};

void write_linear_inputs(ValueMemory& values, float sign) {
  values.write("x", {sign * 1, 2, 3, 0, -1, sign * 0.5F});
  values.write("r", {10, 20, 30, 40});
  values.write("w", {1, 0, 2, -1, 3, 1});
  values.write("b", {0.5F, -0.5F});
}

TEST_F(ProgramTest, EnqueueComputesTheFormula) {
  const Result<Program> program = compile(kLinearText);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  ValueMemory values(*device_, *stream_, *program, tokens(2));
  write_linear_inputs(values, 1);
  const Result<BoundProgram> bound = bind(*program, values, 2);
  ASSERT_TRUE(bound.ok()) << bound.status().to_string();
  EXPECT_EQ(bound->num_instructions(), 3u);
  ASSERT_TRUE(bound->enqueue(*stream_).ok());
  // The rows of x wᵀ are {1+6, -1+6+3} and {1, -3+0.5}. The bias adds {0.5, -0.5} to each row.
  EXPECT_THAT(values.read("lin"), ElementsAre(7.5F, 7.5F, 1.5F, -3.0F));
  EXPECT_THAT(values.read("z"), ElementsAre(25, 35, 33, 34));
}

TEST_F(ProgramTest, RecordedAndEagerGiveEqualBytesForNewContents) {
  const Program program = *compile(kLinearText);
  ValueMemory values(*device_, *stream_, program, tokens(2));
  const BoundProgram bound = *bind(program, values, 2);
  write_linear_inputs(values, 1);
  ASSERT_TRUE(stream_->begin_recording("g").ok());
  ASSERT_TRUE(bound.enqueue(*stream_).ok());
  const Result<std::unique_ptr<RecordedGraph>> graph = stream_->end_recording();
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->stats().nodes, 3);
  EXPECT_TRUE(std::isnan(values.read("z")[0])) << "recording must not run anything";

  for (const float sign : {-1.0F, 1.0F}) {
    write_linear_inputs(values, sign);
    ASSERT_TRUE((*graph)->launch(*stream_).ok());
    const std::vector<float> replayed = values.read("z");
    ASSERT_TRUE(stream_->fill(values.addresses()[6], 0xff, 16).ok());
    ASSERT_TRUE(bound.enqueue(*stream_).ok());
    EXPECT_EQ(values.read("z"), replayed);
    EXPECT_EQ(replayed[0], 2 * (sign * 1 + 6 + 0.5F) + 10);
  }
}

TEST_F(ProgramTest, OneProgramServesEveryBucket) {
  const Program program = *compile(kLinearText);
  ValueMemory one(*device_, *stream_, program, tokens(1));
  ValueMemory two(*device_, *stream_, program, tokens(2));
  const BoundProgram small = *bind(program, one, 1);
  const BoundProgram large = *bind(program, two, 2);
  write_linear_inputs(one, 1);
  write_linear_inputs(two, 1);
  ASSERT_TRUE(large.enqueue(*stream_).ok());
  ASSERT_TRUE(small.enqueue(*stream_).ok());
  EXPECT_THAT(one.read("z"), ElementsAre(25, 35));
  EXPECT_THAT(two.read("z"), ElementsAre(25, 35, 33, 34));
}

TEST_F(ProgramTest, ViewsAndAllocationsRunNothing) {
  const Program program = *compile(R"(graph @g {
    input %x: f32[T, 4]
    %s: f32[T, 4] = scale(%x) {factor = 3.0}
    %v: f32[2*T, 2] = reshape(%s) {shape = "2*T, 2"}
    %e: f32[2*T, 2] = empty_like(%v)
    %y: f32[2*T, 2] = add(%v, %v)
    return %y
  })");
  EXPECT_EQ(program.instructions.size(), 2u);
  ValueMemory values(*device_, *stream_, program, tokens(1));
  values.write("x", {1, 2, 3, 4});
  ASSERT_TRUE(bind(program, values, 1)->enqueue(*stream_).ok());
  EXPECT_THAT(values.read("y"), ElementsAre(6, 12, 18, 24));
}

TEST_F(ProgramTest, AMissingKernelIsNamed) {
  const KernelTable without_scale({kAddCpu});
  const Result<Program> program =
      compile("graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} return %y }", without_scale);
  EXPECT_EQ(program.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(program.status().message(), HasSubstr("'scale'"));
}

Result<std::unique_ptr<BoundOp>> refuse_to_bind(const BindArgs&) { return unimplemented("no such width"); }
Result<std::size_t> no_scratch(const BindArgs&) { return invalid_argument("no such height"); }
template <int kFactor>
Result<std::size_t> scratch(const BindArgs& args) {
  return static_cast<std::size_t>(args.operands[0].bytes() * kFactor);
}

// The steps are add, scale and mul. The test uses several kernel tables. In each of them a different step needs the
// most scratch.
constexpr const char* kThreeSteps = R"(graph @g {
  input %x: f32[T, 1]
  %a: f32[T, 1] = add(%x, %x)
  %b: f32[T, 1] = scale(%a) {factor = 2.0}
  %c: f32[T, 1] = mul(%b, %x)
  return %c
})";

TEST_F(ProgramTest, WorkspaceIsTheLargestOfTheSteps) {
  const auto with = [](auto add, auto scale, auto mul) {
    return KernelTable({{.op = "add", .name = "t", .bind = kAddCpu.bind, .workspace_bytes = add},
                        {.op = "scale", .name = "t", .bind = kScaleCpu.bind, .workspace_bytes = scale},
                        {.op = "mul", .name = "t", .bind = kMulCpu.bind, .workspace_bytes = mul}});
  };
  const KernelTable tables[] = {with(scratch<7>, scratch<2>, scratch<3>), with(scratch<2>, scratch<7>, nullptr),
                                with(nullptr, scratch<2>, scratch<7>)};
  for (const KernelTable& table : tables) {
    const Program program = *compile(kThreeSteps, table);
    EXPECT_EQ(*program.workspace_bytes(tokens(5), *device_, context_), 7u * 20);
    EXPECT_EQ(*program.workspace_bytes(tokens(1), *device_, context_), 7u * 4);
  }
  const KernelTable none = with(nullptr, nullptr, nullptr);
  EXPECT_EQ(*compile(kThreeSteps, none)->workspace_bytes(tokens(5), *device_, context_), 0u);
}

TEST_F(ProgramTest, BindGivesStepsTheWorkspace) {
  static DeviceAddress seen;
  const KernelTable table({{.op = "add", .name = "t", .bind = [](const BindArgs& args) {
                              seen = args.workspace;
                              return kAddCpu.bind(args);
                            }}});
  const Program program = *compile("graph @g { input %x: f32[T, 2] %y = add(%x, %x) return %y }", table);
  ValueMemory values(*device_, *stream_, program, tokens(1));
  std::byte memory{};
  const DeviceAddress workspace{&memory};
  ASSERT_TRUE(program.bind(values.target(tokens(1), context_, workspace)).ok());
  EXPECT_EQ(seen, workspace);
}

TEST_F(ProgramTest, ErrorsNameOperatorAndValue) {
  const KernelTable table({{.op = "add", .name = "t", .bind = kAddCpu.bind, .workspace_bytes = no_scratch},
                           {.op = "scale", .name = "t", .bind = refuse_to_bind},
                           {.op = "mul", .name = "t", .bind = kMulCpu.bind}});
  const Program program = *compile(kThreeSteps, table);
  ValueMemory values(*device_, *stream_, program, tokens(2));
  EXPECT_THAT(program.bind(values.target(tokens(2), context_)).status().message(),
              AllOf(HasSubstr("operator scale (%b)"), HasSubstr("no such width")));
  EXPECT_THAT(program.workspace_bytes(tokens(2), *device_, context_).status().message(),
              AllOf(HasSubstr("operator add (%a)"), HasSubstr("no such height")));
}

TEST_F(ProgramTest, ALaunchThatFailsIsNamed) {
  const Program program = *compile(kThreeSteps);
  ValueMemory values(*device_, *stream_, program, tokens(2));
  const BoundProgram bound = *program.bind(values.target(tokens(2), context_));
  const char* const steps[] = {"operator add (%a)", "operator scale (%b)", "operator mul (%c)"};
  for (int k = 0; k < 3; ++k) {
    device_->set_plan({.launch_fails_at = k + 1});
    EXPECT_THAT(bound.enqueue(*stream_).message(), HasSubstr(steps[k]));
  }
}

TEST_F(ProgramTest, ErrorsUseTheBoundPiecesNames) {
  const Program program = *compile(kThreeSteps);
  const std::vector<std::string> names = {"x.7", "a.7", "b.7", "c.7"};
  ValueMemory values(*device_, *stream_, program, tokens(2));
  const ir::Bucket bucket = tokens(2);
  BindTarget target = values.target(bucket, context_);
  target.names = names;
  const BoundProgram bound = *program.bind(target);
  device_->set_plan({.launch_fails_at = 2});
  EXPECT_THAT(bound.enqueue(*stream_).message(), HasSubstr("operator scale (%b.7)"));
}

// This program computes y = x + 1, for which there is no registered operator.
TEST_F(ProgramTest, AnInstructionNeedsNoNodeOfAGraph) {
  Program program;
  program.values = {{.name = "x", .type = {ir::DType::kFloat32, {ir::Symbol::kTokens}}, .kind = ir::ValueKind::kInput},
                    {.name = "y", .type = {ir::DType::kFloat32, {ir::Symbol::kTokens}}}};
  const float one = 1;  // captured by value, like the data of generated code
  const auto bind = [one](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
    return make_cpu_op("increment", [one, x = args.operands[0], y = args.results[0]] {
      for (std::int64_t i = 0; i < x.elements(); ++i) y.as<float>()[i] = x.as<float>()[i] + one;
    });
  };
  program.instructions.push_back(
      {.call = {.op = "increment", .operands = {ir::ValueId(0)}, .mutates = {false}, .results = {ir::ValueId(1)}},
       .kernel = {.name = "generated", .bind = bind}});
  ValueMemory values(*device_, *stream_, program, tokens(3));
  values.write("x", {1, 2, 3});
  ASSERT_TRUE(bind_and_enqueue(program, values, 3).ok());
  EXPECT_THAT(values.read("y"), ElementsAre(2, 3, 4));
}

TEST_F(ProgramTest, APatchedInstructionRunsItsNewKernel) {
  Program program = *compile(kThreeSteps);
  ASSERT_EQ(program.instructions[1].kernel.name, "cpu");
  program.instructions[1].call.attributes = {{"factor", 10.0}};
  ValueMemory values(*device_, *stream_, program, tokens(1));
  values.write("x", {3});
  ASSERT_TRUE(bind_and_enqueue(program, values, 1).ok());
  EXPECT_THAT(values.read("c"), ElementsAre((3 + 3) * 10 * 3));
}

TEST_F(ProgramTest, SizesThatDoNotDivideAreNamed) {
  const Program program = *compile(R"(graph @g {
    input %x: f32[T/2, 2]
    %halved: f32[T/2, 2] = scale(%x) {factor = 2.0}
    return %halved
  })");
  ValueMemory values(*device_, *stream_, program, tokens(4));
  EXPECT_TRUE(program.bind(values.target(tokens(4), context_)).ok());
  EXPECT_THAT(program.bind(values.target(tokens(3), context_)).status().message(),
              AllOf(HasSubstr("%x"), HasSubstr("T/2 with T=3")));
}

TEST_F(ProgramTest, TooManyDimensionsAreRefused) {
  const Result<TensorView> view = make_view({ir::DType::kFloat32, {1, 1, 1, 1, 1, 1}}, tokens(1), {});
  EXPECT_EQ(view.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(view.status().message(), HasSubstr("more than 5 dimensions"));
}

TEST_F(ProgramTest, ViewsHaveTheBucketsNumbers) {
  std::byte memory{};
  const DeviceAddress data{&memory};
  const TensorView view = *make_view({ir::DType::kBFloat16, {ir::Dim(ir::Symbol::kTokens) * 2, 7}}, tokens(3), data);
  EXPECT_EQ(view.data, data);
  EXPECT_EQ(view.dtype, ir::DType::kBFloat16);
  EXPECT_EQ(view.rank, 2);
  EXPECT_EQ(view.dim(0), 6);
  EXPECT_EQ(view.dim(1), 7);
  EXPECT_EQ(view.bytes(), 84);
}

}  // namespace
}  // namespace tessera
