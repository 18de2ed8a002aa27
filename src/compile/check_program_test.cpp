// Catches mistakes of a compiler that would otherwise only cause wrong results: a value that no instruction makes; a
// value whose type differs from its type in the graph that was compiled; an instruction without a kernel.
#include "tessera/compile/check_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compile/eager.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ir::Graph& piece() {
  static const ir::Graph graph = testing::parse(R"(graph @g {
    input %x: f32[T, 4]
    %a: f32[T, 4] = scale(%x) {factor = 2.0}
    %flat: f32[4*T] = reshape(%a) {shape = "4*T"}
    %b: f32[4*T] = scale(%flat) {factor = 3.0}
    %room: f32[4*T] = empty_like(%b)
    return %b, %room })",
                                                built_in_ops());
  return graph;
}

// Returns the error that check_program() finds in the eager program after `change`, or "" if there is none.
template <class Change>
std::string error_of(const Change& change) {
  Program program = *eager_program(piece(), built_in_ops(), cpu_kernels());
  change(program);
  return check_program(program, piece(), built_in_ops()).message();
}

TEST(CheckProgram, AcceptsEagerPrograms) {
  EXPECT_EQ(error_of([](Program&) {}), "") << "%room is left for a later part to write";
}

TEST(CheckProgram, NamesTheMistake) {
  EXPECT_THAT(error_of([](Program& p) { p.instructions.pop_back(); }), HasSubstr("output %b is never written"));
  EXPECT_THAT(error_of([](Program& p) { p.instructions.erase(p.instructions.begin()); }),
              AllOf(HasSubstr("instruction 0, scale"), HasSubstr("%flat is read before anything is written to it")));
  EXPECT_THAT(error_of([](Program& p) { p.instructions[1].kernel.bind = nullptr; }),
              AllOf(HasSubstr("instruction 1, scale"), HasSubstr("no kernel")));
  EXPECT_THAT(error_of([](Program& p) { p.instructions[0].call.operands[0] = ir::ValueId(9); }),
              HasSubstr("operand 0 is no value"));
  EXPECT_THAT(error_of([](Program& p) { p.instructions[0].call.results[0] = ir::ValueId(-1); }),
              HasSubstr("result 0 is no value"));
  EXPECT_THAT(error_of([](Program& p) { p.instructions[0].call.results[0] = ir::ValueId(0); }),
              HasSubstr("input %x cannot be a result"));
  EXPECT_THAT(error_of([](Program& p) { p.instructions[0].call.mutates.clear(); }), HasSubstr("1 operands"));
  EXPECT_THAT(error_of([](Program& p) { p.values[2].view_of = ir::ValueId(3); }),
              HasSubstr("%flat is a view of no earlier value"));
  EXPECT_THAT(error_of([](Program& p) { p.values[1].type.dtype = ir::DType::kInt32; }),
              AllOf(HasSubstr("%a of type i32[T, 4]"), HasSubstr("%a of type f32[T, 4]")));
  EXPECT_THAT(error_of([](Program& p) { p.values[1].of_piece = ir::ValueId(77); }), HasSubstr("value 77"));
  EXPECT_THAT(error_of([](Program& p) { p.values[0].of_piece = kNoValue; }), HasSubstr("none of the piece's"));
  EXPECT_THAT(error_of([](Program& p) { p.values.pop_back(); }), HasSubstr("output %room is missing"));
}

TEST(CheckProgram, AcceptsAValueThatWasFusedAway) {
  EXPECT_EQ(error_of([](Program& p) {
              // One instruction computes b = 6 x. Nothing uses %a and %flat any more.
              p.instructions.erase(p.instructions.begin());
              p.instructions[0].call.operands = {ir::ValueId(0)};
            }),
            "");
}

}  // namespace
}  // namespace tessera
