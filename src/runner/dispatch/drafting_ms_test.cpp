// Catches: an estimated time that leaves out padding rows; a forward with drafts that is estimated as a prefill
// although a decode graph has enough rows; and a forward with prompts that is estimated as a decode.
#include <gtest/gtest.h>

#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {
namespace {

DispatchTable graphs_of(std::vector<std::int64_t> sizes, const CostTable& costs) {
  return {.prefill_sizes = sizes, .decode_sizes = sizes, .costs = &costs};
}

TEST(DraftingMs, IsTheCostOfADecodeOfAllRows) {
  CostTable costs;
  for (const std::int64_t size : {4, 16, 64}) {
    costs.add(RunnerKind::kPrefill, size, 10 + 0.1 * static_cast<double>(size));
    costs.add(RunnerKind::kEager, size, 90);
    costs.add(RunnerKind::kDecode, size, 8 + 0.4 * static_cast<double>(size));
  }
  DispatchTable table = graphs_of({4, 16, 64}, costs);
  EXPECT_DOUBLE_EQ(*drafting_ms(16, 16, table), 14.4) << "a decode";
  EXPECT_DOUBLE_EQ(*drafting_ms(64, 16, table), 33.6);
  EXPECT_DOUBLE_EQ(*drafting_ms(15, 4, table), 14.4) << "padded";
  table.decode_sizes = {4, 16};
  EXPECT_DOUBLE_EQ(*drafting_ms(64, 16, table), 14.4 + 16.4 - 11.6) << "pieces of one request, and a decode of 16";
  EXPECT_DOUBLE_EQ(*prompts_ms(5, table), 11.6) << "padded to 16";
  const CostTable nothing;
  EXPECT_EQ(prompts_ms(4, graphs_of({4, 16, 64}, nothing)), std::nullopt);
  EXPECT_EQ(drafting_ms(16, 4, graphs_of({4, 16, 64}, nothing)), std::nullopt) << "nothing was measured";
  table.costs = nullptr;
  EXPECT_EQ(drafting_ms(16, 4, table), std::nullopt);
}

}  // namespace
}  // namespace tessera
