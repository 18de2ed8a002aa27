// Metrics count the accepted draft tokens at each draft position. Catches: counts under a name that vLLM's dashboards
// do not know; and counts at a wrong draft position.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tessera/server/metrics/metrics.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string scraped(const EngineStats& stats) {
  ServerMetrics metrics(MetricsStyle::kVllm, "demo");
  return metrics.scrape(std::array{stats}, MemoryBudget(1000));
}

TEST(DraftMetrics, PositionsHaveTheDraftsThatWereKept) {
  constexpr const char* kName = "vllm:spec_decode_num_accepted_tokens_per_pos_total";
  EngineStats stats;
  stats.graphs = std::make_shared<GraphInventory>();
  EXPECT_THAT(scraped(stats), Not(HasSubstr(kName)));
  stats.drafts.add(3, 2);
  stats.drafts.add(3, 1);
  const std::string text = scraped(stats);
  for (const auto& [position, kept] : {std::pair(0, 2), std::pair(1, 1), std::pair(2, 0)})
    EXPECT_THAT(text, HasSubstr(std::string(kName) + R"({model_name="demo",engine="0",position=")" +
                                std::to_string(position) + "\"} " + std::to_string(kept)));
}

}  // namespace
}  // namespace tessera
