// Catches: an executable with two compilers in which a bucket gets the program, memory plan or outputs of the wrong
// compiler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/fused/fused.h"
#include "tessera/ops/fused/row_cpu.h"
#include "tessera/piecewise/executable_test_util.h"

namespace tessera {
namespace {

using testing::ExecutableBench;
using testing::kCuts;
using testing::tokens;

// Each piece has two operators that the fused compiler fuses into one.
constexpr const char* kPairs = R"(graph @pairs {
  input %x: f32[T, 8]
  weight %w: f32[8, 8]
  %a: f32[T, 8] = linear(%x, %w)
  %b: f32[T, 8] = add(%a, %x)
  %c: f32[T, 8] = scale(%b) {factor = 0.5}
  %out: f32[T, 8] = empty_like(%c)
  store(%c, mut %out)
  %d: f32[T, 8] = mul(%out, %x)
  %e: f32[T, 8] = add(%d, %c)
  return %e
})";

TEST(ExecutableCompilers, EachServesItsBuckets) {
  ExecutableBench bench(testing::parse(kPairs, testing::bench_ops()), 24);
  CompilerContext context = bench.compiler_context();
  context.row_kernels = &cpu_row_kernels();
  Result<std::unique_ptr<Compiler>> fused = make_fused_compiler(context);
  ASSERT_TRUE(fused.ok()) << fused.status().to_string();
  bench.use_compiler_up_to(9, *std::move(fused));
  const Result<std::unique_ptr<Executable>> made = bench.create(kCuts);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  Executable& executable = **made;
  const auto instructions = [&](std::int64_t size) {
    std::size_t count = 0;
    for (const CompiledPart& part : executable.parts(tokens(size))) count += part.program->instructions.size();
    return count;
  };
  EXPECT_LT(instructions(9), instructions(16));
  EXPECT_EQ(executable.compile_counts().compiled, 2 * executable.compiled().counts.compiled);
  EXPECT_LT(executable.graph_need(tokens(9)).operators, executable.graph_need(tokens(16)).operators);
  for (const std::int64_t size : {24, 9, 16, 4}) {
    ASSERT_TRUE(executable.bind(tokens(size)).ok());
    ASSERT_TRUE(executable.capture(tokens(size)).ok());
  }
  for (const std::int64_t size : {24, 9, 16, 4}) {
    EXPECT_EQ(bench.replay(executable, size, 3), bench.reference(size, 3)) << size;
    EXPECT_EQ(bench.run(executable, size, 4), bench.reference(size, 4)) << size;
    EXPECT_TRUE(executable.check_addresses(tokens(size)).ok()) << size;
    EXPECT_EQ(executable.output(tokens(size), 0)->data, executable.output(tokens(24), 0)->data) << size;
  }
}

}  // namespace
}  // namespace tessera
