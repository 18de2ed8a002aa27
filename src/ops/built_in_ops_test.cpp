// Catches: operators that are declared but not listed, or listed without a kernel; contradictory declarations;
// operators that can neither be captured in a graph nor run between graphs.
#include "tessera/ops/built_in_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tessera/ops/contract/op_test_util.h"

namespace tessera {
namespace {

using ::testing::ElementsAreArray;

// Models and passes refer to operators by these names. A change that adds or removes an operator must also change this
// list.
TEST(BuiltInOps, ListsExactlyTheExpectedNames) {
  std::vector<std::string_view> names;
  for (const ir::OpDecl* decl : built_in_ops().all()) {
    names.push_back(decl->name);
    std::printf("  %-13s %s\n", std::string(decl->name).c_str(), std::string(decl->summary).c_str());
  }
  EXPECT_THAT(names, ElementsAreArray({"adapter_add",
                                       "adapter_experts",
                                       "adapter_lookup",
                                       "adapter_shrink",
                                       "adapter_whole_embedding",
                                       "adapter_whole_linear",
                                       "add",
                                       "add_gated",
                                       "add_given",
                                       "add_rms_norm",
                                       "all_gather",
                                       "all_gather_rows",
                                       "all_reduce",
                                       "argmax",
                                       "attention",
                                       "axial_table",
                                       "cast",
                                       "causal_conv",
                                       "copy",
                                       "embedding",
                                       "empty",
                                       "empty_like",
                                       "gated_delta_net",
                                       "gated_norm",
                                       "gather_rows",
                                       "gelu",
                                       "gelu_mul",
                                       "head_norm",
                                       "join",
                                       "kv_store",
                                       "latent_attention",
                                       "latent_store",
                                       "layer_norm",
                                       "linear",
                                       "log_softmax",
                                       "logit_edits",
                                       "moe_experts",
                                       "moe_route",
                                       "mul",
                                       "qkv_rope_store",
                                       "quantised_linear",
                                       "quick_gelu",
                                       "receive_from_previous",
                                       "reduce_scatter",
                                       "reshape",
                                       "resolve_ids",
                                       "rms_norm",
                                       "rotary",
                                       "rotary_table",
                                       "rotate_heads",
                                       "sample",
                                       "scale",
                                       "segment_attention",
                                       "send_to_next",
                                       "sigmoid_gate",
                                       "silu",
                                       "silu_mul",
                                       "softcap",
                                       "split",
                                       "top_logprobs",
                                       "weighted_rows"}));
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

// Checks that the device has a complete kernel for every operator that runs, and no kernel for views and allocations.
void check_kernels(const KernelTable& kernels) {
  for (const ir::OpDecl* decl : built_in_ops().all()) {
    const Result<const KernelDef*> kernel = kernels.get(decl->name);
    ASSERT_EQ(kernel.ok(), decl->execution == ir::Execution::kKernel) << decl->name;
    if (!kernel.ok()) continue;
    EXPECT_EQ((*kernel)->op, decl->name);
    EXPECT_FALSE((*kernel)->name.empty()) << decl->name;
    EXPECT_NE((*kernel)->bind, nullptr) << decl->name;
  }
}

TEST(BuiltInOps, EveryOperatorThatRunsHasACpuKernel) { check_kernels(cpu_kernels()); }

TEST(BuiltInOps, EveryOperatorHasACudaKernel) {
  if (!testing::on_cuda()) GTEST_SKIP() << "TESSERA_TEST_DEVICE is not cuda";
  const Result<const KernelTable*> kernels = testing::test_devices().kernels("cuda");
  ASSERT_TRUE(kernels.ok()) << kernels.status().to_string();
  check_kernels(**kernels);
}

TEST(BuiltInOps, DeclarationsAreComplete) {
  for (const ir::OpDecl* decl : built_in_ops().all()) {
    EXPECT_FALSE(decl->summary.empty()) << decl->name;
    EXPECT_EQ(decl->summary.find('\n'), std::string_view::npos) << decl->name;
    EXPECT_NE(decl->infer, nullptr) << decl->name;
    std::set<std::string_view> operands;
    bool optional = false;
    for (const ir::OperandDecl& operand : decl->operands) {
      EXPECT_TRUE(operands.insert(operand.name).second) << decl->name << " has two operands " << operand.name;
      EXPECT_TRUE(operand.optional || !optional)
          << decl->name << ": " << operand.name << " follows an optional operand";
      optional = operand.optional;
    }
    std::set<std::string_view> attributes;
    for (const ir::AttributeDecl& attribute : decl->attributes)
      EXPECT_TRUE(attributes.insert(attribute.name).second) << decl->name << " has two attributes " << attribute.name;
  }
}

TEST(BuiltInOps, SplitOpsMixTokensOrRanks) {
  const std::set<std::string_view> split = {"all_reduce", "attention", "gated_delta_net", "latent_attention"};
  for (const ir::OpDecl* decl : built_in_ops().all()) {
    EXPECT_TRUE(decl->execution == ir::Execution::kKernel || decl->capturable) << decl->name << ": nothing of it runs";
    EXPECT_EQ(decl->split_by_default, split.contains(decl->name)) << decl->name;
  }
}

// Views and allocations write to no operand. A view has exactly one operand, because its result shares that operand's
// memory.
TEST(BuiltInOps, ViewsAndAllocationsMutateNothing) {
  for (const ir::OpDecl* decl : built_in_ops().all()) {
    if (decl->execution == ir::Execution::kKernel) continue;
    for (const ir::OperandDecl& operand : decl->operands) EXPECT_FALSE(operand.mutated) << decl->name;
    if (decl->execution == ir::Execution::kView) {
      EXPECT_EQ(decl->operands.size(), 1u) << decl->name;
    }
  }
}

TEST(BuiltInOps, UnknownOperatorsAreErrors) {
  EXPECT_EQ(built_in_ops().get("rms_nrom").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(cpu_kernels().get("rms_nrom").status().code(), StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tessera
