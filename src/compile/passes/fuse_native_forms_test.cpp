// An operator's native form is its decomposition into simpler operators. The pass finds nodes that are such a form and
// fuses them into the operator. Catches: fusion of nodes that only resemble a native form (another epsilon, split or
// head size); fusion although other nodes read an inner value of the form; fusion although another node between the
// fused nodes writes one of their operands; a fused operator at a place where one of its operands does not exist yet;
// and native forms that the pass never finds.
#include "tessera/compile/passes/fuse_native_forms.h"

#include <set>

#include "tessera/compile/passes/fused_forms.h"
#include "tessera/compile/passes/native_form.h"
#include "tessera/compile/passes/pass_test_util.h"

namespace tessera {
namespace {

using testing::after;
using testing::graph;
using testing::kUnchanged;

std::string fused(std::string_view statements) { return after(fuse_native_forms, statements); }

TEST(FuseNativeForms, AddThenNorm) {
  EXPECT_EQ(fused("%sum = add(%x, %r) %n = rms_norm(%sum, %w) {eps = 1e-05} %y = silu(%n) return %y, %sum"),
            graph("%n, %sum = add_rms_norm(%x, %r, %w) {eps = 1e-05} %y = silu(%n) return %y, %sum"));
}

TEST(FuseNativeForms, TheGatedActivations) {
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%a) %y = mul(%g, %b) return %y"),
            graph("%y = silu_mul(%x) return %y"));
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%a) %y = mul(%b, %g) return %y"),
            graph("%y = silu_mul(%x) return %y"))
      << "mul commutes";
  for (const char* tanh : {"", " {tanh = true}", " {tanh = false}"})
    EXPECT_EQ(
        fused("%a, %b = split(%x) {sizes = [4, 4]} %g = gelu(%a)" + std::string(tanh) + " %y = mul(%g, %b) return %y"),
        graph("%y = gelu_mul(%x)" + std::string(tanh) + " return %y"));
}

TEST(FuseNativeForms, DoesNotFuseTheWrongHalfOrAnotherSplit) {
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%b) %y = mul(%g, %a) return %y"), kUnchanged);
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%a) %y = mul(%g, %a) %z = silu(%b) return %y, %z"),
            kUnchanged);
  EXPECT_EQ(fused("%a, %b, %c = split(%x) {sizes = [3, 3, 2]} %g = silu(%a) %y = mul(%g, %b) return %y, %c"),
            kUnchanged);
}

TEST(FuseNativeForms, AdditionsGoIntoLinear) {
  EXPECT_EQ(fused("%a = linear(%x, %m) %y = add(%a, %w) return %y"),
            graph("%y = linear(%x, %m, %w) {bias = true} return %y"));
  EXPECT_EQ(fused("%a = linear(%x, %m) {bias = false} %y = add(%r, %a) return %y"),
            graph("%y = linear(%x, %m, %r) {bias = false, residual = true} return %y"));
  EXPECT_EQ(fused("%a = linear(%x, %m) %b = add(%a, %w) %y = add(%b, %r) return %y"),
            graph("%y = linear(%x, %m, %w, %r) {bias = true, residual = true} return %y"));
  EXPECT_EQ(fused("%a = linear(%x, %m) %b = add(%a, %r) %y = add(%b, %r) return %y"),
            graph("%b = linear(%x, %m, %r) {residual = true} %y = add(%b, %r) return %y"))
      << "it has one residual";
  EXPECT_EQ(fused("%a = linear(%x, %m) %y = add(%a, %a) return %y"), kUnchanged) << "from elsewhere";
}

TEST(FuseNativeForms, ANormTakesTheResidualBeforeALinear) {
  EXPECT_EQ(fused("%a = linear(%x, %m) %sum = add(%a, %r) %n = rms_norm(%sum, %w) {eps = 1e-05} return %n"),
            graph("%a = linear(%x, %m) %n, %sum = add_rms_norm(%a, %r, %w) {eps = 1e-05} return %n"));
}

// Single operators that make the q, k and v of a layer.
constexpr const char* kHeads = R"(
    %table = rotary_table(%positions, %freq)
    %q, %k, %v = split(%qkv) {sizes = [8, 4, 4]}
    %q3 = reshape(%q) {shape = "T,2,4"}
    %qn3 = rms_norm(%q3, %hw) {eps = 1e-05}
    %qn = reshape(%qn3) {shape = "T,8"}
    %k3 = reshape(%k) {shape = "T,1,4"}
    %kn3 = rms_norm(%k3, %kw) {eps = 1e-05}
    %kn = reshape(%kn3) {shape = "T,4"}
    %kr = rotary(%kn, %table) {head_dim = 4, interleaved = false}
    %qr = rotary(%qn, %table) {head_dim = 4}
    kv_store(%kr, %v, %slots, mut %kc, mut %vc)
    return %qr)";

std::string with_qkv(std::string text, std::string_view old = "", std::string_view by = "") {
  if (!old.empty()) text.replace(text.find(old), old.size(), by);
  return "input %qkv: f32[T, 16] " + text;
}

TEST(FuseNativeForms, NormsRotationAndStoreOverTwoSteps) {
  EXPECT_EQ(fused(with_qkv(kHeads)), graph(with_qkv(R"(%table = rotary_table(%positions, %freq)
                %qr = qkv_rope_store(%qkv, %table, %slots, mut %kc, mut %vc, %hw, %kw)
                    {eps = 1e-05, heads = 2, qk_norm = true}
                return %qr)")));
}

TEST(FuseNativeForms, RotationAndStoreWithoutNorms) {
  EXPECT_EQ(fused(with_qkv(R"(%table = rotary_table(%positions, %freq)
                %q, %k, %v = split(%qkv) {sizes = [8, 4, 4]}
                %qr = rotary(%q, %table) {head_dim = 4}
                %kr = rotary(%k, %table) {head_dim = 4}
                kv_store(%kr, %v, %slots, mut %kc, mut %vc) return %qr)")),
            graph(with_qkv(R"(%table = rotary_table(%positions, %freq)
                %qr = qkv_rope_store(%qkv, %table, %slots, mut %kc, mut %vc) {heads = 2} return %qr)")));
}

TEST(FuseNativeForms, StoreInACacheWithScales) {
  constexpr std::string_view kCache =
      "state %k8: f8e4m3[P, 16, 1, 4] state %v8: f8e4m3[P, 16, 1, 4] weight %one: f32[1] ";
  const auto with_cache = [&](std::string_view text) { return std::string(kCache) + with_qkv(std::string(text)); };
  EXPECT_EQ(fused(with_cache(R"(%table = rotary_table(%positions, %freq)
                %q, %k, %v = split(%qkv) {sizes = [8, 4, 4]}
                %qr = rotary(%q, %table) {head_dim = 4}
                %kr = rotary(%k, %table) {head_dim = 4}
                kv_store(%kr, %v, %slots, mut %k8, mut %v8, %one, %one) return %qr)")),
            graph(with_cache(R"(%table = rotary_table(%positions, %freq)
                %qr = qkv_rope_store(%qkv, %table, %slots, mut %k8, mut %v8, %one, %one) {heads = 2} return %qr)")));
}

TEST(FuseNativeForms, HeadsThatDifferAreNotStoredInOneStep) {
  const auto stays = [](std::string_view old, std::string_view by) {
    const std::string text = fused(with_qkv(kHeads, old, by));
    EXPECT_EQ(text.find("qkv_rope_store"), std::string::npos) << by << "\n" << text;
    EXPECT_NE(text.find("kv_store"), std::string::npos) << text;
  };
  stays("%kn3 = rms_norm(%k3, %kw) {eps = 1e-05}", "%kn3 = rms_norm(%k3, %kw) {eps = 1e-06}");
  stays("interleaved = false", "interleaved = true");
  stays("%qr = rotary(%qn, %table)", "%t2 = rotary_table(%positions, %freq) {scale = 2.0} %qr = rotary(%qn, %t2)");
  stays("return %qr", "return %qr, %kr");
  stays("return %qr", "%again = silu(%v) return %qr, %again");
  stays("kv_store(%kr, %v,", "kv_store(%v, %kr,");
  stays("rotary(%kn, %table)", "rotary(%k, %table)");
}

TEST(FuseNativeForms, FusesHeadsOfOneNorm) {
  EXPECT_EQ(fused(R"(%a = reshape(%x) {shape = "T, 2, 4"} %b = rms_norm(%a, %hw) {eps = 1e-05}
                     %y = reshape(%b) {shape = "T, 8"} return %y)"),
            graph("%y = head_norm(%x, %hw) {eps = 1e-05} return %y"));
  EXPECT_EQ(fused(R"(%a = reshape(%x) {shape = "2*T, 4"} %b = rms_norm(%a, %hw) {eps = 1e-05}
                     %y = reshape(%b) {shape = "T, 8"} return %y)"),
            kUnchanged)
      << "not as head_norm spells it";
}

TEST(FuseNativeForms, AViewThatOthersUseTooStaysForThem) {
  constexpr const char* kTwoNorms = R"(
      %a = reshape(%x) {shape = "T, 2, 4"}
      %b = rms_norm(%a, %hw) {eps = 1e-05} %y = reshape(%b) {shape = "T, 8"}
      %c = rms_norm(%a, %kw) {eps = 1e-05} %z = reshape(%c) {shape = "T, 8"} )";
  EXPECT_EQ(fused(kTwoNorms + std::string("return %y, %z")),
            graph("%y = head_norm(%x, %hw) {eps = 1e-05} %z = head_norm(%x, %kw) {eps = 1e-05} return %y, %z"));
  EXPECT_EQ(fused(kTwoNorms + std::string("return %y, %z, %a")),
            graph(R"(%a = reshape(%x) {shape = "T, 2, 4"} %y = head_norm(%x, %hw) {eps = 1e-05}
                     %z = head_norm(%x, %kw) {eps = 1e-05} return %y, %z, %a)"));
  EXPECT_EQ(fused(R"(%e = silu(%x) %a = reshape(%e) {shape = "T, 2, 4"} %b = rms_norm(%a, %hw) {eps = 1e-05}
                     %y = reshape(%b) {shape = "T, 8"} all_reduce(mut %a) return %y, %a)"),
            kUnchanged)
      << "what is written through the view comes later";
}

TEST(FuseNativeForms, KeepsFormsWhoseInnerValuesAreUsedElsewhere) {
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%a) %y = mul(%g, %b) %z = silu(%g) return %y, %z"),
            kUnchanged);
  EXPECT_EQ(fused("%a, %b = split(%x) {sizes = [4, 4]} %g = silu(%a) %y = mul(%g, %b) return %y, %g"), kUnchanged);
  EXPECT_EQ(fused(R"(%a, %b = split(%x) {sizes = [4, 4]} %v = reshape(%b) {shape = "4*T"} %g = silu(%a)
                     %y = mul(%g, %b) return %y, %v)"),
            kUnchanged)
      << "through a view";
  EXPECT_EQ(fused("%a = linear(%x, %m) %y = add(%a, %r) return %y, %a"), kUnchanged);
}

TEST(FuseNativeForms, DoesNotFuseAcrossAWrite) {
  EXPECT_EQ(fused("%a = linear(%x, %m) all_reduce(mut %a) %y = add(%a, %r) return %y"), kUnchanged)
      << "partial sums are added over the ranks first";
  EXPECT_EQ(fused("%sum = add(%x, %r) all_reduce(mut %sum) %n = rms_norm(%sum, %w) {eps = 1e-05} return %n, %sum"),
            kUnchanged);
  EXPECT_EQ(fused(R"(%sum = add(%x, %r) %v = reshape(%sum) {shape = "8*T"} all_reduce(mut %v)
                     %n = rms_norm(%sum, %w) {eps = 1e-05} return %n, %sum)"),
            kUnchanged)
      << "through a view";
  // linear reads the state before all_reduce writes it, and add reads it afterwards, so the fused operator has no
  // correct place.
  EXPECT_EQ(fused("%a = linear(%s, %m) %z = silu(%x) all_reduce(mut %s) %y = add(%a, %s) return %y, %z"), kUnchanged);
}

TEST(FuseNativeForms, TheOperatorStandsWhereAllOfItCanMove) {
  // The fused operator takes the add's place, because a node in between reads the sum.
  EXPECT_EQ(fused(R"(%sum = add(%x, %r) %z = silu(%sum) %n = rms_norm(%sum, %w) {eps = 1e-05} return %n, %z)"),
            graph("%n, %sum = add_rms_norm(%x, %r, %w) {eps = 1e-05} %z = silu(%sum) return %n, %z"));
  // The fused operator takes the add's place, because the state is written before the norm, and the sum is read before
  // that write.
  EXPECT_EQ(fused(R"(%sum = add(%s, %r) %z = silu(%sum) all_reduce(mut %s) %n = rms_norm(%sum, %w) {eps = 1e-05}
                     return %n, %z)"),
            graph(R"(%n, %sum = add_rms_norm(%s, %r, %w) {eps = 1e-05} %z = silu(%sum) all_reduce(mut %s)
                     return %n, %z)"));
  // The fused operator takes the last addition's place, because the residual is made after the linear.
  EXPECT_EQ(fused("%a = linear(%x, %m) %z = silu(%r) %y = add(%a, %z) return %y"),
            graph("%z = silu(%r) %y = linear(%x, %m, %z) {residual = true} return %y"));
  // There is no place for the fused operator: the norm's weight %z is computed from the sum.
  EXPECT_EQ(fused(R"(input %x8: f32[8] input %r8: f32[8]
                     %sum = add(%x8, %r8) %z = silu(%sum) %n = rms_norm(%sum, %z) {eps = 1e-05} return %n)"),
            kUnchanged);
}

// An operator whose native form reads a value and then overwrites it. The operator returns gelu(silu(x)) and the sum of
// silu(x) over the ranks.
Result<std::vector<ir::Type>> infer_pair(const ir::OpSignature& s) { return std::vector(2, s.operands[0]); }
Result<std::vector<ir::ValueId>> decompose_pair(ir::GraphBuilder& b, const ir::Node&,
                                                std::span<const ir::ValueId> operands) {
  const ir::ValueId a = b.op("silu", {operands[0]});
  const ir::ValueId g = b.op("gelu", {a});
  b.op("all_reduce", {a});
  return std::vector{g, a};
}
const ir::OpDecl kPair{
    .name = "pair", .summary = "", .operands = {{"x"}}, .infer = infer_pair, .decompose = decompose_pair};

TEST(FuseNativeForms, NodesThatDependStandInTheNativeFormsOrder) {
  std::vector<const ir::OpDecl*> declarations(built_in_ops().all().begin(), built_in_ops().all().end());
  declarations.push_back(&kPair);
  const ir::OpTable ops(declarations);
  const FusedForm form{.op = "pair", .operands = {{ir::DType::kFloat32, {ir::Symbol::kTokens, 8}}}, .attributes = {}};
  const NativeForm example = NativeForm::create(form, ops).value();
  const auto found = [&](std::string_view statements) {
    const ir::Graph in = testing::parse_statements(statements);
    return find_native_form(form, example, in, GraphFacts(in, ops), ops, ir::NodeId{0}).has_value();
  };
  EXPECT_TRUE(found("%a = silu(%x) %g = gelu(%a) all_reduce(mut %a) return %g, %a"));
  EXPECT_FALSE(found("%a = silu(%x) all_reduce(mut %a) %g = gelu(%a) return %g, %a"));
}

Result<std::vector<ir::ValueId>> use_one(ir::GraphBuilder& b, const ir::Node&, std::span<const ir::ValueId> operands) {
  return std::vector{b.op("silu", {operands[0]})};
}
Result<std::vector<ir::ValueId>> start_twice(ir::GraphBuilder& b, const ir::Node&,
                                             std::span<const ir::ValueId> operands) {
  return std::vector{b.op("add", {b.op("silu", {operands[0]}), b.op("silu", {operands[1]})})};
}
Result<std::vector<ir::ValueId>> use_none(ir::GraphBuilder&, const ir::Node&, std::span<const ir::ValueId> operands) {
  return std::vector{operands[0]};
}

TEST(FuseNativeForms, AnUnsearchableFormIsAnInternalError) {
  const ir::Type x{ir::DType::kFloat32, {ir::Symbol::kTokens, 8}};
  const auto message = [&](const Decompose& decompose) {
    const FusedForm form{.op = "add", .operands = {x, x}, .attributes = {}, .decompose = decompose};
    return NativeForm::create(form, built_in_ops()).status().message();
  };
  EXPECT_EQ(message(use_one), "add: its native form does not use operand 1");
  EXPECT_EQ(message(start_twice), "add: node 1 of its native form, silu, takes nothing from those before it");
  EXPECT_EQ(message(use_none), "add: its native form has no nodes");
  EXPECT_EQ(message(nullptr), "add declares no native form");
}

TEST(FuseNativeForms, SearchesForEveryOperatorWithANativeForm) {
  std::set<std::string_view> looked_for;
  for (const FusedForm& form : fused_forms()) {
    const Result<NativeForm> example = NativeForm::create(form, built_in_ops());
    EXPECT_TRUE(example.ok()) << example.status().to_string();
    if (form.decompose == nullptr) looked_for.insert(form.op);
  }
  std::set<std::string_view> declared;
  for (const ir::OpDecl* decl : built_in_ops().all())
    if (decl->decompose != nullptr) declared.insert(decl->name);
  EXPECT_EQ(looked_for, declared);
}

}  // namespace
}  // namespace tessera
