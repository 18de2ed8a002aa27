// Catches: operands of moe_experts whose shapes or types do not fit each other but are accepted; a refusal whose
// message does not say which operand is wrong and why.
#include <gmock/gmock.h>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/moe/moe_experts.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

TEST(MoeExpertsShapes, RefusesOperandsThatDoNotFit) {
  const ir::Dim tokens = ir::Symbol::kTokens;
  const ir::Type x{DType::kBFloat16, {tokens, 64}};
  const ir::Type ids{DType::kInt32, {tokens, 2}};
  const ir::Type weights{DType::kFloat32, {tokens, 2}};
  const ir::Type gate_up{DType::kBFloat16, {8, 96, 64}};
  const ir::Type down{DType::kBFloat16, {8, 64, 48}};
  const ir::Type bias{DType::kBFloat16, {8, 96}};
  EXPECT_EQ((*infer_types(kMoeExperts, {x, ids, weights, gate_up, down}))[0], x);
  EXPECT_EQ(infer_error(kMoeExperts, {x, ids, weights, gate_up, down, bias}, {{"gate_up_bias", true}}), "");
  const auto error = [&](std::vector<ir::Type> operands, ir::Attributes attributes = {}) {
    return infer_error(kMoeExperts, operands, std::move(attributes));
  };
  EXPECT_THAT(error({x, ids, weights, gate_up, down, bias}), HasSubstr("take 5 operands, not 6"));
  EXPECT_THAT(error({x, ids, weights, gate_up, down, bias}, {{"down_bias", true}}),
              HasSubstr("down_bias is bf16[8, 96]"));
  EXPECT_THAT(error({x, ids, ids, gate_up, down}), HasSubstr("weights is i32[T, 2]; it must be f32[T, 2]"));
  EXPECT_THAT(error({x, weights, weights, gate_up, down}), HasSubstr("ids is f32[T, 2]"));
  EXPECT_THAT(error({x, ids, weights, down, gate_up}), HasSubstr("gate_up is bf16[8, 64, 48]"));
  const ir::Type odd{DType::kBFloat16, {8, 95, 64}};
  EXPECT_THAT(error({x, ids, weights, odd, down}), HasSubstr("gate_up has 95 rows"));
  const ir::Type fewer{DType::kBFloat16, {7, 64, 48}};
  EXPECT_THAT(error({x, ids, weights, gate_up, fewer}),
              HasSubstr("down is bf16[7, 64, 48]; it must be bf16[8, 64, 48]"));
  const ir::Type none{DType::kBFloat16, {0, 96, 64}};
  EXPECT_THAT(error({x, ids, weights, none, down}), HasSubstr("numbers above 0"));
  const ir::Type many{DType::kBFloat16, {1025, 96, 64}};
  const ir::Type many_down{DType::kBFloat16, {1025, 64, 48}};
  EXPECT_THAT(error({x, ids, weights, many, many_down}), HasSubstr("1025 experts; it takes at most 1024"));
  EXPECT_THAT(error({x, ids, weights, gate_up, down}, {{"activation", std::string("relu")}}),
              HasSubstr("activation = \"relu\""));
  EXPECT_THAT(error({x, ids, weights, gate_up, down}, {{"activation", std::string("clamped_swiglu")}}),
              HasSubstr("limit = 0; it must be above 0"));
  EXPECT_EQ(error({x, ids, weights, gate_up, down}, {{"routed_experts", std::int64_t{64}}}), "");
  for (const std::int64_t routed : {7, 1025})
    EXPECT_THAT(error({x, ids, weights, gate_up, down}, {{"routed_experts", routed}}),
                HasSubstr("it must be 8 to 1024"));
}

TEST(MoeExpertsShapes, RefusesFourBitsThatDoNotFit) {
  const ir::Dim tokens = ir::Symbol::kTokens;
  const ir::Type x{DType::kBFloat16, {tokens, 64}};
  const ir::Type ids{DType::kInt32, {tokens, 2}};
  const ir::Type weights{DType::kFloat32, {tokens, 2}};
  const ir::Type gate_up{DType::kUInt8, {8, 192, 32}};
  const ir::Type down{DType::kUInt8, {8, 64, 48}};
  const ir::Type gate_up_scale{DType::kUInt8, {8, 192, 2}};
  const ir::Type down_scale{DType::kUInt8, {8, 64, 3}};
  const ir::Type bias{DType::kBFloat16, {8, 64}};
  const auto error = [&](const std::vector<ir::Type>& operands, bool down_bias = false) {
    return infer_error(kMoeExperts, operands, {{"mxfp4", true}, {"down_bias", down_bias}});
  };
  EXPECT_EQ(error({x, ids, weights, gate_up, down, gate_up_scale, down_scale}), "");
  EXPECT_EQ(error({x, ids, weights, gate_up, down, bias, gate_up_scale, down_scale}, true), "");
  EXPECT_THAT(error({x, ids, weights, gate_up, down}),
              HasSubstr("mxfp4 = true and quantised = false take 7 operands, not 5"));
  EXPECT_THAT(error({x, ids, weights, gate_up, down, down_scale, gate_up_scale}),
              HasSubstr("gate_up_scale is u8[8, 64, 3]; it must be u8[8, 192, 2]"));
  EXPECT_THAT(error({x, ids, weights, gate_up, down, gate_up_scale, gate_up_scale}),
              HasSubstr("down_scale is u8[8, 192, 2]; it must be u8[8, 64, 3]"));
  const ir::Type floats{DType::kBFloat16, {8, 192, 64}};
  EXPECT_THAT(error({x, ids, weights, floats, down, gate_up_scale, down_scale}),
              HasSubstr("gate_up is bf16[8, 192, 64]; it must be u8[8, 192, 32]"));
  const ir::Type narrow{DType::kUInt8, {8, 96, 32}};
  EXPECT_THAT(error({x, ids, weights, narrow, down, gate_up_scale, down_scale}),
              HasSubstr("down has 48 columns; mxfp4 takes multiples of 32"));
}

}  // namespace
}  // namespace tessera::testing
