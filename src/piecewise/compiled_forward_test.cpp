// Catches: equal layers that are compiled separately; a shared program that runs on another layer's values or reports
// their names; memory for a value that a compiler removed; missing memory for a value that a compiler added; and a
// split operator that is passed to a compiler.
#include "tessera/piecewise/compiled_forward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using testing::bench_ops;
using testing::ExecutableBench;
using ::testing::HasSubstr;
using testing::kCuts;
using testing::tokens;

// Two equal layers. Each layer becomes a piece and a split op, and one more piece follows the last layer.
constexpr const char* kLayers = R"(graph @layers {
  input %x: f32[T, 8]
  weight %w.0: f32[8, 8]
  weight %w.1: f32[8, 8]
  %a.0: f32[T, 8] = scale(%x) {factor = 2.0}
  %b.0: f32[T, 8] = scale(%a.0) {factor = 0.25}
  %m.0: f32[T, 8] = matmul(%b.0, %w.0)
  %out.0: f32[T, 8] = empty_like(%m.0)
  store(%m.0, mut %out.0)
  %a.1: f32[T, 8] = scale(%out.0) {factor = 2.0}
  %b.1: f32[T, 8] = scale(%a.1) {factor = 0.25}
  %m.1: f32[T, 8] = matmul(%b.1, %w.1)
  %out.1: f32[T, 8] = empty_like(%m.1)
  store(%m.1, mut %out.1)
  %end: f32[T, 8] = add(%out.1, %out.1)
  return %end
})";

ExecutableBench layers() { return ExecutableBench(testing::parse(kLayers, bench_ops()), 16); }

TEST(CompiledForward, PartsOfOneStructureShareAProgram) {
  ExecutableBench bench = layers();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  const std::span<const CompiledPart> parts = executable->parts();
  ASSERT_EQ(parts.size(), 5u);
  EXPECT_EQ(parts[0].program, parts[2].program);
  EXPECT_EQ(parts[1].program, parts[3].program);
  EXPECT_NE(parts[0].program, parts[4].program);
  EXPECT_NE(parts[0].slots, parts[2].slots);
  EXPECT_THAT(parts[2].value_names, ::testing::Contains("w.1"));
  const CompileCounts& counts = executable->compiled().counts;
  EXPECT_EQ(counts.compiled, 2) << "the layers' piece and the last";
  EXPECT_EQ(counts.shared, 2);
  EXPECT_EQ(counts.loaded, 0);

  for (const std::int64_t size : {16, 3}) {
    ASSERT_TRUE(executable->bind(tokens(size)).ok());
    ASSERT_TRUE(executable->capture(tokens(size)).ok());
    EXPECT_EQ(bench.replay(*executable, size, 1), bench.reference(size, 1));
    EXPECT_EQ(bench.run(*executable, size, 2), bench.reference(size, 2));
  }
}

TEST(CompiledForward, ErrorsNameTheValuesOfTheirOwnPart) {
  ExecutableBench bench = layers();
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  ASSERT_TRUE(executable->bind(tokens(4)).ok());
  bench.load(1);
  bench.device().set_plan({.launch_fails_at = 6});
  EXPECT_THAT(executable->run(tokens(4)).message(), AllOf(HasSubstr("piece 2 at T=4"), HasSubstr("scale (%b.1)")));
}

// Fuses the two scalings of a layer into one. The fused operator writes a value that the compiler added. A copy
// operator then copies this value to the layer's own result.
class ScaleFuser final : public Compiler {
 public:
  ScaleFuser(const CompilerContext& context, std::vector<std::string>& seen) : Compiler(context), seen_(seen) {}

  std::string_view name() const override { return "scale_fuser"; }
  Hash128 hash() const override { return Hasher().finish(); }
  Result<CompilerOutput> compile(const ir::Graph& piece) const override {
    seen_.push_back(piece.name);
    Program program = TRY(eager_program(piece, context().ops, context().kernels));
    if (program.instructions[0].call.op != "scale") return CompilerOutput{.program = std::move(program)};
    const ir::ValueId result = program.instructions[1].call.results[0];
    const ir::ValueId own(static_cast<std::int32_t>(program.values.size()));
    program.values.push_back({.name = "scaled", .type = program.value(result).type});
    Instruction& fused = program.instructions[0];
    fused.call.op = "scale_twice";
    fused.call.results = {own};
    fused.kernel = {.name = "generated", .bind = [](const BindArgs& args) -> Result<std::unique_ptr<BoundOp>> {
                      return make_cpu_op("scale_twice", [x = args.operands[0], y = args.results[0]] {
                        for (std::int64_t i = 0; i < x.elements(); ++i) y.as<float>()[i] = x.as<float>()[i] * 0.5F;
                      });
                    }};
    program.instructions[1] =
        make_instruction({.op = "copy", .operands = {own}, .mutates = {false}, .results = {result}},
                         *TRY(context().ops.get("copy")), *TRY(context().kernels.get("copy")));
    return CompilerOutput{.program = std::move(program)};
  }
  Result<Program> load(const ir::Graph& /*piece*/, const Json& /*handle*/) const override {
    return unimplemented("it keeps nothing");
  }

 private:
  std::vector<std::string>& seen_;
};

TEST(CompiledForward, ACompilerMayRemoveValuesAndAddItsOwn) {
  ExecutableBench bench = layers();
  std::vector<std::string> seen;
  bench.use_compiler(std::make_unique<ScaleFuser>(bench.compiler_context(), seen));
  const std::unique_ptr<Executable> executable = *bench.create(kCuts);
  EXPECT_THAT(seen, ::testing::ElementsAre("layers.piece 0", "layers.piece 4")) << "split ops are no compiler's";

  const CompiledForward& forward = executable->compiled();
  const Liveness live = *analyze_liveness(forward);
  std::vector<std::string> names;
  for (const Liveness::Range& r : live.ranges) names.push_back(forward.slots[static_cast<std::size_t>(r.slot)].name);
  EXPECT_THAT(names, ::testing::ElementsAre("piece 0: scaled", "b.0", "m.0", "out.0", "piece 2: scaled", "b.1", "m.1",
                                            "out.1", "end"))
      << "a.0 and a.1 are fused away";

  const std::unique_ptr<Executable> isolated =
      *bench.create(kCuts, {.largest = {}, .memory = MemoryPlanKind::kIsolated});
  for (const std::int64_t size : {16, 3}) {
    const testing::Outcome want = bench.reference(size, 1);
    ASSERT_TRUE(executable->bind(tokens(size)).ok());
    ASSERT_TRUE(executable->capture(tokens(size)).ok());
    ASSERT_TRUE(isolated->bind(tokens(size)).ok());
    EXPECT_EQ(bench.replay(*executable, size, 1), want);
    EXPECT_EQ(bench.run(*isolated, size, 1), want);
    EXPECT_TRUE(isolated->check_guards(tokens(size)).ok());
    EXPECT_TRUE(executable->check_addresses(tokens(size)).ok());
  }
  bench.device().set_plan({.launch_fails_at = 1});
  EXPECT_THAT(executable->run(tokens(3)).message(), HasSubstr("operator scale_twice (%piece 0: scaled)"));
}

TEST(CompiledForward, AViewOfAnInputIsThatInput) {
  ExecutableBench bench(testing::parse(R"(graph @g {
    input %x: f32[T, 8]
    %flat: f32[8*T] = reshape(%x) {shape = "8*T"}
    %y: f32[8*T] = scale(%flat) {factor = 3.0}
    return %y })",
                                       bench_ops()),
                        8);
  const std::unique_ptr<Executable> executable = *bench.create({});
  ASSERT_TRUE(executable->bind(tokens(5)).ok());
  ASSERT_TRUE(executable->capture(tokens(5)).ok());
  EXPECT_EQ(bench.replay(*executable, 5, 1), bench.reference(5, 1));
  EXPECT_TRUE(executable->check_addresses(tokens(5)).ok());
  bench.externals().add("x", bench.external("x") + 256);
  EXPECT_FALSE(executable->check_addresses(tokens(5)).ok());
}

}  // namespace
}  // namespace tessera
