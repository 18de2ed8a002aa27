// Catches: costs of drafting forwards that leave out the padding; costs of drafting forwards that count a request's
// rows but not the request itself.
#include <gtest/gtest.h>

#include "tessera/runner/dispatch/dispatch.h"

namespace tessera {
namespace {

DispatchTable graphs_of(std::vector<std::int64_t> sizes, const CostTable& costs) {
  return {.prefill_sizes = sizes, .decode_sizes = sizes, .costs = &costs};
}

TEST(DraftingMs, AddsRowsToWhatTheRequestsCost) {
  CostTable costs;
  for (const std::int64_t size : {4, 16, 64}) {
    costs.add(RunnerKind::kPrefill, size, 10 + 0.1 * static_cast<double>(size));
    costs.add(RunnerKind::kEager, size, 90);
    // Each request adds 0.4 ms to a decode, as if each request had a state of its own.
    costs.add(RunnerKind::kDecode, size, 8 + 0.4 * static_cast<double>(size));
  }
  DispatchTable table = graphs_of({4, 16, 64}, costs);
  EXPECT_DOUBLE_EQ(*drafting_ms(16, 16, table), 14.4) << "a decode";
  EXPECT_DOUBLE_EQ(*drafting_ms(64, 16, table), 14.4 + 16.4 - 11.6) << "48 rows more";
  EXPECT_DOUBLE_EQ(*drafting_ms(16, 4, table), 11.6) << "no less than the prefill";
  EXPECT_DOUBLE_EQ(*drafting_ms(15, 4, table), 11.6) << "padded";
  const CostTable nothing;
  EXPECT_EQ(drafting_ms(16, 4, graphs_of({4, 16, 64}, nothing)), std::nullopt) << "nothing was measured";
  table.costs = nullptr;
  EXPECT_EQ(drafting_ms(16, 4, table), std::nullopt);
}

}  // namespace
}  // namespace tessera
