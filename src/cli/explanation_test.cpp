// Catches: a choice of earlier starts that explain does not show, or shows where it is not taken.
#include "tessera/cli/explanation_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/device/testing/environment.h"

namespace tessera::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

EngineOptions options_with_choice() {
  EngineOptions options{.model_path = testing::data_path("goldens/llama")};
  options.graphs.piecewise_tokens = {8, 32};
  options.known_costs.emplace().add_full(32, {.ratio = 0.5, .equal = true});
  options.known_costs->add_full(8, {.ratio = 1.5, .equal = true});
  return options;
}

TEST(Explanation, TellsWhichSizesAreReplayedAsOneGraph) {
  const Result<Explanation> e = explain(options_with_choice(), 30, {});
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_THAT(e->full_sizes, ElementsAre(32));
  const std::string text = to_text(*e);
  EXPECT_THAT(text, HasSubstr("as one graph      32\n"));
  EXPECT_THAT(text, HasSubstr("one graph with attention inside was measured to be faster than pieces"));
  const std::string json = to_json(*e).dump();
  EXPECT_THAT(json, HasSubstr(R"("full_sizes": [32])"));
  EXPECT_THAT(json, HasSubstr(R"("reason": "full_costs_less")"));
  EXPECT_THAT(to_text(*explain(options_with_choice(), 8, {})), HasSubstr("a graph of this size"));
}

TEST(Explanation, SaysWhereNothingWasChosenOrMayBe) {
  EngineOptions options = options_with_choice();
  options.graphs.mode = GraphMode::kPiecewise;
  EXPECT_THAT(explain(options, 30, {})->full_sizes, IsEmpty());
  options = options_with_choice();
  options.known_costs.reset();
  EXPECT_THAT(to_text(*explain(options, 30, {})), Not(HasSubstr("as one graph")));
}

}  // namespace
}  // namespace tessera::cli
