// A batch is measured in several forms: eagerly, with a graph for each piece of the forward, and as one graph. Catches:
// ratios of medians instead of medians of ratios; a form that serves batches but is not compared with the eager form; a
// verdict that hides a median ratio above the limit kMostGraphToEager; a cost of a cut between two pieces that has the
// wrong sign or unit; a table whose rows do not match its header.
#include "tessera/cli/bench/graph_forms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace tessera::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FormRow prefill(std::int64_t tokens, FormTimes times, std::string compiler = "eager") {
  return {.compiler = std::move(compiler), .count = tokens, .size = tokens, .cuts = 10, .times = std::move(times)};
}

FormRow decode(std::int64_t requests, FormTimes times) {
  return {.compiler = "eager", .decode = true, .count = requests, .size = requests, .times = std::move(times)};
}

TEST(GraphForms, RatiosAreComputedForEachRound) {
  // All forms take twice as long in the second round as in the first, and about three times as long in the third.
  const FormResult r = form_result(prefill(64, {.eager = {2, 4, 6}, .pieces = {1, 2, 3.3}, .full = {0.9, 1.8, 2.7}}));
  EXPECT_DOUBLE_EQ(*r.eager_ms, 4);
  EXPECT_DOUBLE_EQ(*r.pieces_ms, 2);
  EXPECT_DOUBLE_EQ(r.pieces_to_eager->median, 0.5);
  EXPECT_DOUBLE_EQ(r.pieces_to_eager->interval.low, 0.5);
  EXPECT_DOUBLE_EQ(r.pieces_to_eager->interval.high, 0.55);
  EXPECT_DOUBLE_EQ(r.full_to_eager->median, 0.45);
  EXPECT_NEAR(*r.cut_us, 1e3 * 0.2 / 10, 1e-9);
  EXPECT_DOUBLE_EQ(r.graph_to_eager->median, 0.5) << "a prefill is served by pieces";
}

TEST(GraphForms, OnlyDecodesAndUncutFormsRunAsOneGraph) {
  EXPECT_DOUBLE_EQ(form_result(decode(8, {.eager = {2}, .pieces = {3}, .full = {1}})).graph_to_eager->median, 0.5);
  EXPECT_FALSE(form_result(decode(8, {.eager = {2}, .pieces = {3}, .full = {1}})).cut_us) << "no cuts are told";
  EXPECT_DOUBLE_EQ(form_result(decode(8, {.eager = {2}, .pieces = {3}, .full = {}})).graph_to_eager->median, 1.5);
  EXPECT_DOUBLE_EQ(form_result(prefill(8, {.eager = {2}, .pieces = {}, .full = {1}})).graph_to_eager->median, 0.5);
  const FormResult only_eager = form_result(prefill(8, {.eager = {2}, .pieces = {}, .full = {}}));
  EXPECT_FALSE(only_eager.graph_to_eager || only_eager.pieces_ms || only_eager.cut_us);
}

TEST(GraphForms, TheVerdictNamesAllFormsAboveTheLimit) {
  std::vector<FormRow> rows = {prefill(64, {.eager = {2, 2}, .pieces = {1.9, 1.9}, .full = {}}),
                               decode(1, {.eager = {2, 2, 2}, .pieces = {}, .full = {2.02, 2.02, 2.02}})};
  EXPECT_THAT(to_markdown(rows), HasSubstr("Graphs against eager, 2 sizes in 2 pairs each: no median is above 1.01; "
                                           "the worst is 1.010, decode of 1 request (eager)."));
  rows.push_back(prefill(4096, {.eager = {2}, .pieces = {2.1}, .full = {}}));
  EXPECT_THAT(to_markdown(rows), HasSubstr("above 1.01 are prefill of 4,096 tokens (eager) 1.050; the worst is 1.050"));
  rows = {prefill(4096, {.eager = {2}, .pieces = {}, .full = {}}),
          prefill(5, {.eager = {1}, .pieces = {2}, .full = {}})};
  rows[1].size = 8;  // now padded, so its time does not count against graphs
  EXPECT_THAT(to_markdown(rows), HasSubstr("No batch has graphs of just its size."));
  EXPECT_EQ(to_markdown({}), "No batch was measured.\n");
}

TEST(GraphForms, CutCostsAreCombinedOverPrefills) {
  const std::vector<FormRow> rows = {prefill(64, {.eager = {2}, .pieces = {1.02}, .full = {1}}),
                                     prefill(128, {.eager = {2}, .pieces = {1.03}, .full = {1}}),
                                     prefill(256, {.eager = {2}, .pieces = {1.01}, .full = {1}})};
  EXPECT_THAT(to_markdown(rows),
              HasSubstr("A cut costs 2.00 µs, the median of 3 prefills; the most is 3.00 µs, prefill of 128 tokens"));
}

TEST(GraphForms, TheMarkdownTableHasAColumnForFurtherCompilers) {
  const std::vector<FormRow> one = {prefill(64, {.eager = {2}, .pieces = {1}, .full = {}})};
  EXPECT_THAT(to_markdown(one), Not(HasSubstr("graphs / eager's")));
  std::vector<FormRow> rows = one;
  rows.push_back(prefill(64, {.eager = {1}, .pieces = {0.75}, .full = {}}, "fused"));
  rows.push_back(prefill(128, {.eager = {1}, .pieces = {0.75}, .full = {}}, "fused"));
  const std::string text = to_markdown(rows);
  EXPECT_THAT(text, HasSubstr("| graphs / eager's |"));
  EXPECT_THAT(text, HasSubstr("| prefill of 64 tokens | 64 | fused | 1.00 | 0.750 | – | 0.750 [0.750, 0.750] | – | – "
                              "| 0.750 |\n"));
  EXPECT_THAT(text, HasSubstr("| prefill of 128 tokens | 128 | fused |"));
  std::size_t columns = 0;
  for (std::size_t begin = 0; text[begin] == '|'; begin = text.find('\n', begin) + 1) {
    const std::string line = text.substr(begin, text.find('\n', begin) - begin);
    const auto bars = static_cast<std::size_t>(std::ranges::count(line, '|'));
    EXPECT_EQ(bars, columns == 0 ? bars : columns) << line;
    columns = bars;
  }
  EXPECT_EQ(columns, 11u);
  EXPECT_THAT(to_json(rows).dump(), HasSubstr(R"("to_first_compiler": 0.75)"));
}

}  // namespace
}  // namespace tessera::cli
