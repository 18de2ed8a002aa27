// Catches: an input, weight, state, arena or workspace that has a new address although check_addresses() returns no
// error; values of the last forward that poison() does not overwrite; and a stale output that counts as fresh.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::bench_ops;
using testing::Bytes;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::tokens;
using testing::two_cuts;

// An arena that breaks its contract, because its address changes.
class MovingArena final : public Arena {
 public:
  explicit MovingArena(std::byte* memory, std::size_t bytes) {
    base_ = memory;
    size_ = reserved_ = bytes;
  }
  Status grow(std::size_t bytes) override { return bytes <= size_ ? ok_status() : resource_exhausted("too small"); }
  void move_by(std::ptrdiff_t bytes) { base_ += bytes; }
};

TEST(ExecutableDebug, AMovedExternalIsNamed) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(8)).ok());
  ASSERT_TRUE(executable->bind(tokens(24)).ok());
  ASSERT_TRUE(executable->capture(tokens(8)).ok());
  const struct {
    const char* name;
    const char* what;
    const char* part;
  } cases[] = {{"x", "input %x", "piece 0"}, {"w2", "weight %w2", "piece 2"}, {"s", "state %s", "piece 4"}};
  for (const auto& c : cases) {
    EXPECT_TRUE(executable->check_addresses(tokens(8)).ok()) << c.name;
    const DeviceAddress address = bench.external(c.name);
    bench.externals().add(c.name, address + 256);
    const Status status = executable->check_addresses(tokens(8));
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(c.what), HasSubstr(c.part), HasSubstr("T=8"), HasSubstr("captured")));
    EXPECT_THAT(executable->check_addresses(tokens(24)).message(), HasSubstr("bound with"));
    bench.externals().add(c.name, address);
  }
  EXPECT_TRUE(executable->check_addresses(tokens(8)).ok());
  EXPECT_THAT(executable->check_addresses(tokens(12)).message(), HasSubstr("not bound"));
}

TEST(ExecutableDebug, AMovedArenaOrWorkspaceIsNamed) {
  ExecutableBench bench = two_cuts();
  std::vector<std::byte> memory(1 << 18);
  MovingArena arena(memory.data(), memory.size() / 2);
  MovingArena workspace(memory.data() + memory.size() / 2, memory.size() / 2);
  const ForwardContext context;
  KernelVariants warm;
  const ExecutionEnvironment environment{.device = bench.device(),
                                         .stream = bench.stream(),
                                         .context = context,
                                         .externals = bench.externals(),
                                         .arena = arena,
                                         .workspace = workspace,
                                         .warm = warm};
  const std::unique_ptr<Compiler> compiler = make_eager_compiler(bench.compiler_context());
  const std::unique_ptr<Executable> executable = *Executable::create(*split_graph(bench.graph(), bench_ops(), kCuts),
                                                                     *compiler, environment, {.largest = tokens(24)});
  ASSERT_TRUE(executable->bind(tokens(8)).ok());
  EXPECT_TRUE(executable->check_addresses(tokens(8)).ok());
  arena.move_by(256);
  EXPECT_THAT(executable->check_addresses(tokens(8)).message(), AllOf(HasSubstr("piece 0"), HasSubstr("result %a")));
  arena.move_by(-256);
  workspace.move_by(256);
  EXPECT_THAT(executable->check_addresses(tokens(8)).message(), HasSubstr("the workspace"));
}

TEST(ExecutableDebug, PoisonLeavesNothingButTheReservedBytes) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts, {.largest = {}, .reserved_bytes = 512});
  ASSERT_TRUE(executable->bind(tokens(24)).ok());
  ASSERT_TRUE(executable->capture(tokens(24)).ok());
  const testing::Outcome want = bench.replay(*executable, 24, 1);
  ASSERT_TRUE(bench.stream().fill(bench.arena().base(), 7, 512).ok());
  ASSERT_TRUE(executable->poison(tokens(24)).ok());
  const Bytes left = bench.download(bench.arena().base(), bench.arena().size());
  ASSERT_GT(left.size(), 512u);
  EXPECT_TRUE(std::all_of(left.begin(), left.begin() + 512, [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_TRUE(std::all_of(left.begin() + 512, left.end(), [](std::byte b) { return b == std::byte{0xff}; }));
  EXPECT_EQ(bench.replay(*executable, 24, 1), want);
}

TEST(ExecutableDebug, StepsOneByOneAreTheForward) {
  ExecutableBench bench = two_cuts();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(8)).ok());
  const testing::Outcome want = bench.run(*executable, 8, 3);
  EXPECT_EQ(bench.outcome(*executable, 8, 3,
                          [&](const ir::Bucket& bucket) -> Status {
                            TRY(executable->poison(bucket));
                            for (std::size_t p = 0; p < executable->parts().size(); ++p) {
                              const std::size_t count = executable->parts()[p].program->instructions.size();
                              for (std::size_t i = 0; i < count; ++i) TRY(executable->run_instruction(bucket, p, i));
                            }
                            return ok_status();
                          }),
            want);
  // value() returns the address at which a kernel wrote the value.
  const CompiledPart& last = executable->parts().back();
  const Result<TensorView> e = executable->value(tokens(8), executable->parts().size() - 1, last.outputs.back());
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_EQ(bench.download(e->data, static_cast<std::size_t>(e->bytes())), want[0]);
}

TEST(ExecutableDebug, OutputsAreOfTheForwardThatMadeThem) {
  ExecutableBench bench = two_cuts();
  ArenaHistory history(bench.arena());
  const std::unique_ptr<Executable> executable = *bench.create(kCuts, {}, &history);
  ASSERT_TRUE(executable->bind(tokens(8)).ok());
  ASSERT_TRUE(executable->bind(tokens(24)).ok());
  bench.load(1);
  ASSERT_TRUE(executable->run(tokens(8)).ok());
  const OutputView made = *executable->output(tokens(8), 0);
  EXPECT_TRUE(history.check_fresh(made).ok());
  ASSERT_TRUE(executable->replay(tokens(24)).ok());
  EXPECT_FALSE(history.check_fresh(made).ok());
  // A view that is requested after the later forward is stale too.
  EXPECT_FALSE(history.check_fresh(*executable->output(tokens(8), 0)).ok());
  EXPECT_TRUE(history.check_fresh(*executable->output(tokens(24), 0)).ok());
}

}  // namespace
}  // namespace tessera
