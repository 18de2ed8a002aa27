// A joined kernel runs several consecutive operators at once. Catches: a joined kernel that runs although a result of
// one of its inner operators is needed elsewhere, or although the kernel does not accept the number of rows; operators
// that run in addition to the joined kernel; operators that neither the joined kernel nor their own kernels run; and a
// wrong choice among several joined kernels.
#include "tessera/compile/joins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tessera/compile/eager.h"
#include "tessera/compile/program_text.h"
#include "tessera/compile/value_memory_test_util.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ops/attention/attention.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/ops/cache/qkv_rope_store.h"
#include "tessera/ops/collective/collective.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/layers/decoder_layer_region.h"
#include "tessera/ops/linear/linear.h"
#include "tessera/ops/rows/activation.h"
#include "tessera/ops/rows/elementwise.h"
#include "tessera/ops/rows/norm.h"

namespace tessera {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::parse;
using testing::tokens;
using testing::ValueMemory;

// Computes factor · x + r + `extra`. The term `extra` shows whether this kernel or the kernels of the single operators
// ran.
Result<std::unique_ptr<BoundOp>> bind_scale_add(std::span<const BindArgs> calls, float extra) {
  const float* x = calls[0].operands[0].as<float>();
  const float* r = calls[1].operands[1].as<float>();
  float* y = calls[1].results[0].as<float>();
  const std::int64_t n = calls[1].results[0].elements();
  const auto factor = static_cast<float>(calls[0].node.attribute_or("factor", 1.0));
  return make_cpu_op("scale and add", [=] {
    for (std::int64_t i = 0; i < n; ++i) y[i] = factor * x[i] + r[i] + extra;
  });
}

constexpr JoinedKernelDef kScaleAdd{
    .ops = {"scale", "add"}, .name = "two at once", .most_rows = 2, .bind = [](std::span<const BindArgs> calls) {
      return bind_scale_add(calls, 1000);
    }};
constexpr JoinedKernelDef kNever{
    .ops = {"scale", "add"}, .name = "never", .most_rows = 64, .bind = [](std::span<const BindArgs>) {
      return Result<std::unique_ptr<BoundOp>>(std::unique_ptr<BoundOp>());
    }};

KernelTable table(std::vector<JoinedKernelDef> joined) {
  return KernelTable({kScaleCpu, kAddCpu, kMulCpu}, std::move(joined));
}

constexpr const char* kText = R"(graph @g {
  input %x: f32[T, 2]
  input %r: f32[T, 2]
  %y: f32[T, 2] = scale(%x) {factor = 2.0}
  %z: f32[T, 2] = add(%y, %r)
  return %z
})";

class JoinsTest : public ::testing::Test {
 protected:
  Program compile(std::string_view text, const KernelTable& kernels) {
    return *eager_program(parse(text, built_in_ops()), built_in_ops(), kernels);
  }
  // Returns the output z of kText if all elements of x are 1 and all elements of r are 10. Sets `*wrote_y` to whether y
  // was written.
  std::vector<float> run(const KernelTable& kernels, std::int64_t rows, bool* wrote_y) {
    const Program program = compile(kText, kernels);
    ValueMemory values(*device_, *stream_, program, tokens(rows));
    values.write("x", std::vector<float>(static_cast<std::size_t>(rows) * 2, 1));
    values.write("r", std::vector<float>(static_cast<std::size_t>(rows) * 2, 10));
    const BoundProgram bound = *program.bind(values.target(tokens(rows), context_));
    EXPECT_TRUE(bound.enqueue(*stream_).ok());
    *wrote_y = !std::isnan(values.read("y")[0]);
    EXPECT_EQ(bound.op(0) != nullptr, *wrote_y);
    EXPECT_NE(bound.op(1), nullptr);
    return values.read("z");
  }
  std::vector<Join> joins_of(const char* text) { return compile(text, table({kScaleAdd})).instructions[0].joins; }

  std::unique_ptr<CpuDevice> device_ = CpuDevice::create({.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  ForwardContext context_;
};

TEST_F(JoinsTest, RunInsteadOfTheirOperatorsUpToTheirRows) {
  bool wrote_y = true;
  EXPECT_THAT(run(table({kScaleAdd}), 2, &wrote_y), Each(1012));
  EXPECT_FALSE(wrote_y);
  EXPECT_THAT(run(table({kScaleAdd}), 3, &wrote_y), Each(12));
  EXPECT_TRUE(wrote_y);
}

TEST_F(JoinsTest, SideBySideNeedsOneInputAndNoOrder) {
  constexpr JoinedKernelDef kScaleMul{
      .ops = {"scale", "mul"}, .name = "side by side", .most_rows = 64, .side_by_side = true, .bind = kNever.bind};
  const auto joins = [&](const std::string& calls) {
    const std::string text =
        "graph @g {\n  input %x: f32[T, 2]\n  input %r: f32[T, 2]\n" + calls + "  return %y, %z\n}";
    return compile(text, table({kScaleMul})).instructions[0].joins.size();
  };
  const std::string scale = "  %y: f32[T, 2] = scale(%x) {factor = 2.0}\n";
  EXPECT_EQ(joins(scale + "  %z: f32[T, 2] = mul(%x, %r)\n"), 1U) << "both results are read";
  EXPECT_EQ(joins(scale + "  %z: f32[T, 2] = mul(%r, %x)\n"), 0U) << "another first operand";
  EXPECT_EQ(joins(scale + "  %z: f32[T, 2] = mul(%x, %y)\n"), 0U) << "mul waits for scale";
}

TEST_F(JoinsTest, TheNextJoinRunsIfOneDoesNotServe) {
  bool wrote_y = true;
  EXPECT_THAT(run(table({kNever, kScaleAdd}), 1, &wrote_y), Each(1012));
  EXPECT_FALSE(wrote_y);
  EXPECT_THAT(run(table({kNever}), 1, &wrote_y), Each(12));
  EXPECT_TRUE(wrote_y);
}

TEST_F(JoinsTest, ALongerOneIsPreferred) {
  constexpr JoinedKernelDef kThree{
      .ops = {"scale", "add", "scale"}, .name = "three at once", .most_rows = 4, .bind = [](std::span<const BindArgs>) {
        return Result<std::unique_ptr<BoundOp>>(std::unique_ptr<BoundOp>());
      }};
  const Program program = compile(R"(graph @g {
    input %x: f32[T, 2]
    %y = scale(%x) {factor = 2.0}
    %z = add(%y, %x)
    %a = scale(%z) {factor = 2.0}
    return %a })",
                                  table({kScaleAdd, kThree}));
  ASSERT_EQ(program.instructions[0].joins.size(), 2u);
  EXPECT_EQ(program.instructions[0].joins[0].name, "three at once");
  EXPECT_THAT(program.instructions[1].joins, IsEmpty());
  EXPECT_THAT(*to_text(program, tokens(1)), HasSubstr("up to 4 rows: with the next 2 by three at once"));
}

TEST_F(JoinsTest, ResultsThatAreNeededElsewhereAreNotJoined) {
  EXPECT_EQ(joins_of(kText).size(), 1u);
  // These graphs do not allow the join of scale and add. The result of scale is an output, is read twice, is read
  // through a view, or is add's second operand. In the last graph another operator lies between scale and add.
  for (const char* text :
       {R"(graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} %z = add(%y, %x) return %z, %y })",
        R"(graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} %z = add(%y, %y) return %z })",
        R"(graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} %z = add(%y, %x)
                              %v: f32[2*T] = reshape(%y) {shape = "2*T"} return %z, %v })",
        R"(graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} %z = add(%x, %y) return %z })",
        R"(graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} %m = mul(%x, %x)
                              %z = add(%y, %m) return %z })"})
    EXPECT_THAT(joins_of(text), IsEmpty()) << text;
}

// all_reduce has no result. The value that it passes on to add_rms_norm is its first operand, which it writes.
TEST_F(JoinsTest, AnOperandThatIsWrittenIsPassedOn) {
  constexpr JoinedKernelDef kReduceNorm{
      .ops = {"all_reduce", "add_rms_norm"}, .name = "both", .most_rows = 8, .bind = [](std::span<const BindArgs>) {
        return Result<std::unique_ptr<BoundOp>>(std::unique_ptr<BoundOp>());
      }};
  const KernelTable kernels({kScaleCpu, kAllReduceCpu, kAddRmsNormCpu, kAddCpu}, {kReduceNorm});
  const auto joins = [&](const std::string& last) {
    const std::string text = R"(graph @g { input %x: f32[T, 2] input %r: f32[T, 2] weight %w: f32[2]
                                %y = scale(%x) {factor = 2.0} all_reduce(mut %y) )" +
                             last + " }";
    return compile(text, kernels).instructions[1].joins.size();
  };
  EXPECT_EQ(joins("%n, %s = add_rms_norm(%y, %r, %w) {eps = 1e-6} return %n, %s"), 1u);
  EXPECT_EQ(joins("%n, %s = add_rms_norm(%r, %y, %w) {eps = 1e-6} return %n, %s"), 0u);
  const Program viewed = compile(R"(graph @g { input %x: f32[T, 2] input %r: f32[T, 2] weight %w: f32[2]
                                    %z = scale(%x) {factor = 2.0} %v: f32[2*T] = reshape(%z) {shape = "2*T"}
                                    %y: f32[T, 2] = reshape(%v) {shape = "T, 2"} all_reduce(mut %y)
                                    %n, %s = add_rms_norm(%y, %r, %w) {eps = 1e-6} %a = add(%z, %r)
                                    return %n, %s, %a })",
                                 kernels);
  for (const Instruction& instruction : viewed.instructions) EXPECT_THAT(instruction.joins, IsEmpty());
  EXPECT_EQ(joins("%n, %s = add_rms_norm(%y, %r, %w) {eps = 1e-6} return %n, %s, %y"), 0u);
  EXPECT_EQ(joins("%n, %s = add_rms_norm(%y, %r, %w) {eps = 1e-6} %z = add(%y, %r) return %n, %s, %z"), 0u);
}

// If the second of two operators overwrites the value that passes between them, later readers see the new content. They
// therefore do not prevent the join.
TEST_F(JoinsTest, ReadersOfAValueWrittenAnewAllowAJoin) {
  constexpr JoinedKernelDef kScaleReduce{
      .ops = {"scale", "all_reduce"}, .name = "both", .most_rows = 8, .bind = [](std::span<const BindArgs>) {
        return Result<std::unique_ptr<BoundOp>>(std::unique_ptr<BoundOp>());
      }};
  const KernelTable kernels({kScaleCpu, kAllReduceCpu, kAddCpu}, {kScaleReduce});
  const auto joins = [&](const std::string& last) {
    const std::string text = "graph @g { input %x: f32[T, 2] %y = scale(%x) {factor = 2.0} " + last + " }";
    return compile(text, kernels).instructions[0].joins.size();
  };
  EXPECT_EQ(joins("all_reduce(mut %y) return %y"), 1u);
  EXPECT_EQ(joins("all_reduce(mut %y) %a = add(%y, %x) %b = add(%y, %a) return %b"), 1u);
  EXPECT_EQ(joins("%a = add(%y, %x) all_reduce(mut %y) return %y, %a"), 0u);
}

TEST_F(JoinsTest, AReplacedOperatorKernelIsNotJoined) {
  EXPECT_EQ(table({kScaleAdd}).with(kMulCpu).joined().size(), 1u);
  EXPECT_EQ(table({kScaleAdd}).with(kAddCpu).joined().size(), 0u);
}

constexpr JoinedKernelDef kAllLayers{
    .region = &kDecoderLayers, .name = "all layers", .most_rows = 8, .bind = [](std::span<const BindArgs>) {
      return Result<std::unique_ptr<BoundOp>>(std::unique_ptr<BoundOp>());
    }};

KernelTable layer_table() {
  return KernelTable({kRmsNormCpu, kAddRmsNormCpu, kLinearCpu, kQkvRopeStoreCpu, kAttentionCpu, kSiluMulCpu, kAddCpu},
                     {kAllLayers});
}

// Returns the text of a graph with two layers, followed by `last`. A layer has 2 query heads and 1 KV head, of size 4.
std::string two_layers(const std::string& last) {
  std::string text = R"(graph @g {
    group "full" paged layers [0, 1]
    input %x: f32[T, 8]
    input %table: f32[T, 4]
    input %slots: i32[T]
    weight %norm: f32[8]
    weight %qkv: f32[16, 8]
    weight %o: f32[8, 8]
    weight %gate_up: f32[12, 8]
    weight %down: f32[8, 6]
    state %k0: f32[P, 16, 1, 4]
    state %v0: f32[P, 16, 1, 4]
    state %k1: f32[P, 16, 1, 4]
    state %v1: f32[P, 16, 1, 4]
    %n0 = rms_norm(%x, %norm) {eps = 1e-6}
)";
  for (const auto& [l, stream, next] : {std::tuple{"0", "x", "1"}, {"1", "s1", "2"}}) {
    const auto at = [layer = std::string(l)](const char* name) { return " %" + std::string(name) + layer; };
    text += at("a") + " = linear(%n" + l + ", %qkv) {bias = false}\n" + at("q") + " = qkv_rope_store(" + at("a") +
            ", %table, %slots, mut" + at("k") + ", mut" + at("v") + ") {heads = 2, qk_norm = false}\n" + at("e") +
            " = empty_like(" + at("q") + ")\n attention(" + at("q") + "," + at("k") + "," + at("v") + ", mut" +
            at("e") + ") {group = 0, scale = 0.5}\n" + at("b") + " = linear(" + at("e") + ", %o) {bias = false}\n" +
            at("m") + "," + at("t") + " = add_rms_norm(" + at("b") + ", %" + stream + ", %norm) {eps = 1e-6}\n" +
            at("g") + " = linear(" + at("m") + ", %gate_up) {bias = false}\n" + at("h") + " = silu_mul(" + at("g") +
            ")\n" + at("d") + " = linear(" + at("h") + ", %down) {bias = false}\n %n" + next + ", %s" + next +
            " = add_rms_norm(" + at("d") + "," + at("t") + ", %norm) {eps = 1e-6}\n";
  }
  return text + last + "}";
}

TEST_F(JoinsTest, AllConsecutiveLayersAreJoined) {
  const Program program = compile(two_layers("return %n2, %s2"), layer_table());
  ASSERT_EQ(program.instructions[0].joins.size(), 1u);
  EXPECT_EQ(program.instructions[0].joins[0].instructions, 1 + 2 * kDecoderLayerOps.size());
  for (std::size_t i = 1; i < program.instructions.size(); ++i)
    EXPECT_THAT(program.instructions[i].joins, IsEmpty()) << i;
}

TEST_F(JoinsTest, LayersWithValuesReadElsewhereAreNotJoined) {
  // These graphs do not allow the join, because a value inside the layers is also read elsewhere. The first graph
  // returns a result of the first layer. The second returns a result of attention. In the third, another operator reads
  // an inner value of the first layer.
  for (const char* last : {"return %n2, %s1", "return %n2, %e1", "%z = add(%n2, %t0) return %z"})
    EXPECT_THAT(compile(two_layers(last), layer_table()).instructions[0].joins, IsEmpty()) << last;
}

TEST_F(JoinsTest, AReplacedKernelOfALayerIsNotJoined) {
  EXPECT_EQ(layer_table().with(kAddCpu).joined().size(), 1u);
  for (const KernelDef& kernel : {kRmsNormCpu, kAttentionCpu, kLinearCpu})
    EXPECT_EQ(layer_table().with(kernel).joined().size(), 0u) << kernel.op;
}

}  // namespace
}  // namespace tessera
