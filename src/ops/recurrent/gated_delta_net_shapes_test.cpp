// Catches: operands and attributes of the gated delta net that contradict each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "tessera/ops/contract/op_test_util.h"
#include "tessera/ops/recurrent/gated_delta_net.h"

namespace tessera::testing {
namespace {

using ir::DType;

ir::Attributes attributes_of(std::int64_t held_drafts) {
  return {{"group", std::int64_t{0}}, {"key_heads", std::int64_t{2}}, {"drafts", held_drafts}};
}

TEST(GatedDeltaNetShapes, AreChecked) {
  // 2 key heads of 8 dimensions, 6 value heads of 4
  const ir::Type qkv{DType::kBFloat16, {ir::Symbol::kTokens, 2 * 2 * 8 + 6 * 4}};
  const ir::Type ba{DType::kBFloat16, {ir::Symbol::kTokens, 12}};
  const ir::Type head{DType::kFloat32, {6}};
  const ir::Type state{DType::kFloat32, {ir::Symbol::kPages, 6, 8, 4}};
  EXPECT_EQ(infer_error(kGatedDeltaNet, {qkv, ba, head, head, state}, attributes_of(0)), "");
  const ir::Type drafts{DType::kBFloat16, {ir::Symbol::kPages, 3 * 6 * 4 + (2 * 3 + 1) * (2 * 8 + 2 * 6)}};
  EXPECT_EQ(infer_error(kGatedDeltaNet, {qkv, ba, head, head, state, drafts}, attributes_of(3)), "");
  const auto refused = [&](const std::vector<ir::Type>& operands, ir::Attributes attributes) {
    return !infer_error(kGatedDeltaNet, operands, std::move(attributes)).empty();
  };
  EXPECT_TRUE(refused({qkv, ba, head, head, state}, {{"group", std::int64_t{0}}, {"key_heads", std::int64_t{4}}}));
  EXPECT_TRUE(refused({qkv, ba, head, head, state}, {{"group", std::int64_t{0}}, {"key_heads", std::int64_t{0}}}));
  EXPECT_TRUE(refused({ba, ba, head, head, state}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, qkv, head, head, state}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, {DType::kBFloat16, {6}}, head, state}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, head, {DType::kFloat32, {5}}, state}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, head, head, {DType::kBFloat16, state.shape}}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, head, head, {DType::kFloat32, {ir::Symbol::kPages, 6, 8}}}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, head, head, state, drafts}, attributes_of(0)));
  EXPECT_TRUE(refused({qkv, ba, head, head, state, drafts}, attributes_of(4)));
  EXPECT_TRUE(refused({qkv, ba, head, head, state}, attributes_of(3)));
  EXPECT_TRUE(refused({qkv, ba, head, head, state}, attributes_of(-1)));
}

}  // namespace
}  // namespace tessera::testing
