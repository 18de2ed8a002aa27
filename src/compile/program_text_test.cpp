// Catches: programs that differ although their texts are equal, and a text that differs from run to run.
#include "tessera/compile/program_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using testing::parse;
using testing::tokens;

constexpr const char* kText = R"(graph @g {
  input %x: f32[T, 4]
  weight %w: f32[6, 4]
  state %s: f32[P, 4]
  %y: f32[T, 6] = linear(%x, %w)
  %flat: f32[6*T] = reshape(%y) {shape = "6*T"}
  %z: f32[6*T] = scale(%flat) {factor = 0.5}
  return %z
})";

Program program() { return *eager_program(parse(kText, built_in_ops()), built_in_ops(), cpu_kernels()); }

TEST(ProgramText, HasValuesInstructionsKernelsAndBytes) {
  Program made = program();
  for (Instruction& instruction : made.instructions) instruction.kernel.name = "test";
  made.instructions[1].grid = {ir::Dim(ir::Symbol::kTokens), 2};
  EXPECT_EQ(*to_text(made, tokens(2)), R"(program of 2 instructions at T=2
input %x: f32[T, 4]
weight %w: f32[6, 4]
state %s: f32[P, 4]
result %y: f32[T, 6]
result %flat: f32[6*T], a view of %y
result %z: f32[6*T]
0: linear by test, 176 bytes
   %y: f32[T, 6] = linear(%x, %w)
1: scale by test, 96 bytes, grid [T, 2]
   %z: f32[6*T] = scale(%flat) {factor = 0.5}
)");
}

TEST(ProgramText, ShowsNotesAndTheListingOfGeneratedCode) {
  Program made = program();
  made.notes = {"not fused: no compiler"};
  made.instructions[0].listing = "rows T\n%0: f32[4] = load operand 0\n";
  const std::string text = *to_text(made, tokens(2));
  EXPECT_THAT(text, HasSubstr("instructions at T=2\nnot fused: no compiler\n"));
  EXPECT_THAT(text, HasSubstr("= linear(%x, %w)\n     rows T\n     %0: f32[4] = load operand 0\n1: scale"));
}

TEST(ProgramText, TellsAPatchedProgramFromTheOriginal) {
  const std::string text = *to_text(program(), tokens(2));
  EXPECT_EQ(*to_text(program(), tokens(2)), text);
  const auto patched = [&](auto change) {
    Program made = program();
    change(made);
    return *to_text(made, tokens(2));
  };
  EXPECT_NE(patched([](Program& p) { p.instructions[0].kernel.name = "other"; }), text);
  EXPECT_NE(patched([](Program& p) { p.instructions[1].call.attributes = {{"factor", 0.25}}; }), text);
  EXPECT_NE(patched([](Program& p) { p.instructions[1].call.operands = {ir::ValueId(5)}; }), text);
  EXPECT_NE(patched([](Program& p) { p.values[4].view_of = kNoValue; }), text);
  EXPECT_NE(patched([](Program& p) { p.instructions.pop_back(); }), text);
}

TEST(ProgramText, StatesOfWhichPartIsReadAreNotCounted) {
  const Program stores = *eager_program(parse(R"(graph @g {
    input %k: f32[T, 2] input %v: f32[T, 2] input %slots: i32[T]
    state %ks: f32[P, 16, 1, 2] state %vs: f32[P, 16, 1, 2] group "full" paged layers [0]
    kv_store(%k, %v, %slots, mut %ks, mut %vs)
    return })",
                                              built_in_ops()),
                                        built_in_ops(), cpu_kernels());
  EXPECT_THAT(*to_text(stores, tokens(3)), HasSubstr("kv_store by cpu, 60 bytes"));
}

}  // namespace
}  // namespace tessera
