// A range of consecutive instructions can run twice, each time on one half of the rows, while the ranks exchange the
// other half (halves.h). Catches: a range that runs in halves although one of its operators reads other rows than it
// writes, one of its exchanges needs scratch memory, or it contains no exchange; a half that is read before it was
// exchanged; a side stream that is not used; rows that are left out or computed twice; and scratch memory that is too
// small for a half.
#include "tessera/compile/halves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/compile/eager.h"
#include "tessera/compile/program_text.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/device/errors.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/collective/collective.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/elementwise.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::tokens;
using testing::ValueMemory;

// A shortened version of the operators between the attention operators of two layers.
constexpr const char* kLayer = R"(graph @g {
  input %x: f32[T, 4]
  input %r: f32[T, 4]
  weight %w: f32[4, 4]
  weight %w2: f32[2, 2]
  %o: f32[T, 4] = linear(%x, %w)
  all_reduce(mut %o)
  %h: f32[T, 4] = add(%o, %r)
  %pairs: f32[2*T, 2] = reshape(%h) {shape = "2*T, 2"}
  %up: f32[2*T, 2] = linear(%pairs, %w2)
  all_reduce(mut %up)
  %y: f32[2*T, 2] = mul(%up, %pairs)
  return %y
})";

Program program_of(std::string_view text, const KernelTable& kernels, std::int64_t least_tokens = 2) {
  Program program = *eager_program(parse(text, built_in_ops()), built_in_ops(), kernels);
  if (least_tokens > 0) add_halves(program, least_tokens);
  return program;
}

auto is_run(std::size_t first, std::size_t end) {
  return AllOf(Field(&Halves::first, first), Field(&Halves::end, end));
}

// A stream that logs all work that is enqueued on it, and every fork and join. `side` is its side stream. The kernels
// that logged() binds write to this log and compute nothing.
class LoggedStream final : public Stream {
 public:
  explicit LoggedStream(std::vector<std::string>& log, std::string suffix = "", Stream* side = nullptr)
      : log_(log), suffix_(std::move(suffix)), side_(side) {}
  void add(const std::string& what) { log_.push_back(what + suffix_); }

  Result<Stream*> side() override { return side_; }
  Status fork_side() override { return log_.emplace_back("fork"), ok_status(); }
  Status join_side() override { return log_.emplace_back("join"), ok_status(); }
  Status upload(DeviceAddress, const void*, std::size_t) override { return none(); }
  Status download(void*, DeviceAddress, std::size_t) override { return none(); }
  Status copy(DeviceAddress, DeviceAddress, std::size_t) override { return none(); }
  Status fill(DeviceAddress, std::uint8_t, std::size_t) override { return none(); }
  Status record(Event&) override { return none(); }
  Status wait(Event&) override { return none(); }
  Status synchronize() override { return none(); }
  Status begin_recording(std::string) override { return none(); }
  Result<std::unique_ptr<RecordedGraph>> end_recording() override { return none(); }
  void abandon_recording() override {}
  bool recording() const override { return false; }
  Status recording_status() const override { return ok_status(); }

 private:
  static Status none() { return unimplemented("not of this stream"); }

  std::vector<std::string>& log_;
  std::string suffix_;
  Stream* side_;
};

// Logs a text such as "linear 2", in which 2 is the number of rows of the first operand of linear.
class LoggedOp final : public BoundOp {
 public:
  explicit LoggedOp(std::string what) : what_(std::move(what)) {}
  Status enqueue(Stream& stream) const override {
    static_cast<LoggedStream&>(stream).add(what_);
    return ok_status();
  }

 private:
  std::string what_;
};
Result<std::unique_ptr<BoundOp>> logged(const BindArgs& args) {
  return std::make_unique<LoggedOp>(args.node.op + " " + std::to_string(args.operands[0].rows()));
}
// Returns the size of the scratch memory, which is larger for fewer rows.
Result<std::size_t> scratch(const BindArgs& args) { return static_cast<std::size_t>(1000 - args.operands[0].rows()); }
const KernelTable& logged_kernels() {
  static const KernelTable table({{.op = "linear", .name = "test", .bind = logged, .workspace_bytes = scratch},
                                  {.op = "all_reduce", .name = "test", .bind = logged},
                                  {.op = "add", .name = "test", .bind = logged},
                                  {.op = "mul", .name = "test", .bind = logged}});
  return table;
}

class HalvesTest : public ::testing::Test {
 protected:
  BoundProgram bind(const Program& program, std::int64_t count) {
    memory_ = std::make_unique<ValueMemory>(*device_, *stream_, program, tokens(count));
    scratch_ = *device_->allocate(*program.workspace_bytes(tokens(count), *device_, context_), "scratch");
    return *program.bind(memory_->target(tokens(count), context_, scratch_->data()));
  }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  ForwardContext context_;
  std::unique_ptr<ValueMemory> memory_;
  std::unique_ptr<Allocation> scratch_;
};

TEST(Halves, AreNeighboursThatWorkByRowsWithAnExchange) {
  EXPECT_THAT(program_of(kLayer, cpu_kernels()).halves, ElementsAre(is_run(0, 6)));
  EXPECT_THAT(program_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %a = linear(%x, %w)
    %b = linear(%a, %w)
    return %b })",
                         cpu_kernels())
                  .halves,
              IsEmpty())
      << "no exchange";
  EXPECT_THAT(program_of(R"(graph @g {
    input %x: f32[T, 4]
    %all: f32[2*T, 4] = all_gather_rows(%x) {ranks = 2}
    return %all })",
                         cpu_kernels())
                  .halves,
              IsEmpty())
      << "nothing to run beside";
}

TEST(Halves, EndWhereOtherRowsAreReadAndBeginBehind) {
  EXPECT_THAT(program_of(R"(graph @g {
    input %x: f32[T, 8] input %rows: i32[R] weight %w: f32[8, 8]
    state %k: f32[P, 16, 1, 8] state %v: f32[P, 16, 1, 8] group "full" paged layers [0]
    %out: f32[T, 8] = empty_like(%x)
    %q = linear(%x, %w)
    all_reduce(mut %q)
    attention(%q, %k, %v, mut %out) {group = 0, scale = 1.0}
    %y = linear(%out, %w)
    all_reduce(mut %y)
    %z: f32[R, 8] = gather_rows(%y, %rows)
    all_reduce(mut %z)
    %l = linear(%z, %w)
    return %l })",
                         cpu_kernels())
                  .halves,
              ElementsAre(is_run(0, 2), is_run(3, 5)));
}

// In both graphs only linear and the first all_reduce run in halves. gather_rows and the second linear read all rows,
// and send_to_next is not declared to work row by row.
TEST(Halves, TakeOnlyOperatorsKnownToWorkByRows) {
  EXPECT_THAT(program_of(R"(graph @g {
    input %x: f32[T, 4] input %rows: i32[T] weight %w: f32[4, 4]
    %y = linear(%x, %w)
    all_reduce(mut %y)
    %z: f32[T, 4] = gather_rows(%y, %rows)
    send_to_next(mut %z)
    all_reduce(mut %z)
    return %z })",
                         cpu_kernels())
                  .halves,
              ElementsAre(is_run(0, 2)));
  EXPECT_THAT(program_of(R"(graph @g {
    input %x: f32[T, 4] weight %w: f32[4, 4]
    %y = linear(%x, %w)
    all_reduce(mut %y)
    %scores: f32[T, T] = linear(%y, %x)
    all_reduce(mut %scores)
    return %scores })",
                         cpu_kernels())
                  .halves,
              ElementsAre(is_run(0, 2)))
      << "a row for each token, of a value for each token";
}

TEST(Halves, AnExchangeWithScratchIsNotHalved) {
  const KernelTable kernels =
      logged_kernels().with({.op = "all_reduce", .name = "scratch", .bind = logged, .workspace_bytes = scratch});
  EXPECT_THAT(program_of(kLayer, kernels).halves, IsEmpty());
}

TEST(Halves, AreShownInTheProgramsText) {
  const Program program = program_of(kLayer, cpu_kernels(), 100);
  EXPECT_THAT(*to_text(program, tokens(8)), HasSubstr("from 100 tokens: 0 to 5 in two halves of their rows\n"));
}

// The first half is exchanged while linear runs for the second half, and so on. Each half is read only after the join
// that follows its exchange.
TEST_F(HalvesTest, OneHalfIsExchangedWhileTheOtherIsComputed) {
  const Program program = program_of(kLayer, logged_kernels());
  const BoundProgram bound = bind(program, 5);
  std::vector<std::string> log;
  LoggedStream side(log, " beside");
  LoggedStream main(log, "", &side);
  ASSERT_TRUE(bound.enqueue(main).ok());
  EXPECT_THAT(log, ElementsAre("linear 2", "fork", "all_reduce 2 beside",                   //
                               "linear 3", "join", "fork", "all_reduce 3 beside",           //
                               "add 2", "linear 4", "join", "fork", "all_reduce 4 beside",  //
                               "add 3", "linear 6", "join", "fork", "all_reduce 6 beside",  //
                               "mul 4", "join",                                             //
                               "mul 6"));
}

TEST_F(HalvesTest, FewTokensRunWhole) {
  const Program program = program_of(kLayer, logged_kernels(), 6);
  const BoundProgram bound = bind(program, 5);
  std::vector<std::string> log;
  LoggedStream main(log);
  ASSERT_TRUE(bound.enqueue(main).ok());
  EXPECT_THAT(log, ElementsAre("linear 5", "all_reduce 5", "add 5", "linear 10", "all_reduce 10", "mul 10"));
}

TEST_F(HalvesTest, ScratchIsEnoughForEitherHalf) {
  const Program halved = program_of(kLayer, logged_kernels());
  const Program whole = program_of(kLayer, logged_kernels(), 0);
  EXPECT_EQ(*whole.workspace_bytes(tokens(200), *device_, context_), 800U);
  EXPECT_EQ(tokens_of_first_half(200), 64);
  EXPECT_EQ(*halved.workspace_bytes(tokens(200), *device_, context_), 936U);
  EXPECT_EQ(*program_of(kLayer, logged_kernels(), 201).workspace_bytes(tokens(200), *device_, context_), 800U);
}

TEST_F(HalvesTest, ComputeTheSameAsTheWhole) {
  for (const std::int64_t count : {2, 3, 5, 64, 200}) {
    std::vector<std::vector<float>> results;
    for (const std::int64_t least : {0, 2}) {
      const Program program = program_of(kLayer, cpu_kernels(), least);
      const BoundProgram bound = bind(program, count);
      for (const char* name : {"x", "r", "w", "w2"})
        memory_->write_bytes(name, testing::random_bytes(ir::DType::kFloat32, 200 * 16, name[0]));
      ASSERT_TRUE(bound.enqueue(*stream_).ok());
      results.push_back(memory_->read("y"));
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (std::size_t i = 0; i < results[0].size(); ++i) ASSERT_NEAR(results[0][i], results[1][i], 1e-5) << count;
  }
}

// All ranks warm up the variants of their kernels (KernelVariant) at the same time, so all ranks must have the same
// variants. Two bindings with equal sizes must therefore have the same variant, although their addresses differ.
TEST_F(HalvesTest, VariantDependsOnSizesOnly) {
  const Program program = program_of(kLayer, cpu_kernels());
  const auto variant = [&](std::int64_t count) {
    const BoundProgram bound = bind(program, count);
    return bound.op(5)->variant();
  };
  EXPECT_EQ(variant(8), variant(8));
  EXPECT_NE(variant(8), variant(9));
}

// If an operator fails between a fork and its join, the join must still be enqueued. Without it, waiting for the stream
// would not wait for the work on its side stream.
TEST_F(HalvesTest, AnErrorBetweenForkAndJoinJoins) {
  class Failing final : public BoundOp {
   public:
    Status enqueue(Stream&) const override { return internal_error("injected"); }
  };
  const KernelTable kernels = logged_kernels().with(
      {.op = "add", .name = "failing", .bind = [](const BindArgs&) -> Result<std::unique_ptr<BoundOp>> {
         return std::make_unique<Failing>();
       }});
  const Program program = program_of(kLayer, kernels);
  const BoundProgram bound = bind(program, 4);
  std::vector<std::string> log;
  LoggedStream side(log, " beside");
  LoggedStream main(log, "", &side);
  EXPECT_THAT(bound.enqueue(main).to_string(), AllOf(HasSubstr("operator add (%h)"), HasSubstr("injected")));
  EXPECT_THAT(log, ElementsAre("linear 2", "fork", "all_reduce 2 beside", "linear 2", "join", "fork",
                               "all_reduce 2 beside", "join"));
}

TEST_F(HalvesTest, ErrorsNameTheOperator) {
  const KernelTable kernels =
      cpu_kernels().with({.op = "mul", .name = "bad", .bind = [](const BindArgs&) -> Result<std::unique_ptr<BoundOp>> {
                            return internal_error("injected");
                          }});
  const Program program = program_of(kLayer, kernels);
  memory_ = std::make_unique<ValueMemory>(*device_, *stream_, program, tokens(4));
  EXPECT_THAT(program.bind(memory_->target(tokens(4), context_)).status().to_string(),
              AllOf(HasSubstr("operator mul (%y)"), HasSubstr("injected")));
}

}  // namespace
}  // namespace tessera
