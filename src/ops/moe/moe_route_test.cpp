// Catches: a token whose experts or weights differ from the formula; a higher index that wins among equal scores;
// groups that are ordered by the wrong score; a correction that reaches the weights; padding that chooses experts; and
// ids of one rank's experts that another rank takes for its own.
#include "tessera/ops/moe/moe_route.h"

#include <gmock/gmock.h>

#include <numeric>

#include "tessera/ops/rows/row_test_util.h"

namespace tessera::testing {
namespace {

using ir::DType;
using ::testing::HasSubstr;

struct Routing {
  std::int64_t experts = 8;
  std::int64_t top_k = 2;
  std::string scoring = "softmax";
  bool normalise = false;
  std::int64_t groups = 1;
  std::int64_t groups_per_token = 1;
  std::string group_score = "best";
  double scale = 1;
  bool correction = false;
  bool expert_scale = false;

  ir::Attributes attributes() const {
    return {{"top_k", top_k},
            {"scoring", scoring},
            {"normalise", normalise},
            {"groups", groups},
            {"groups_per_token", groups_per_token},
            {"group_score", group_score},
            {"scale", scale},
            {"correction", correction},
            {"expert_scale", expert_scale}};
  }
};

// Returns slots in which every third row is padding. These are the rows 1, 4, 7, ….
HostTensor slots_of(std::int64_t tokens) {
  std::vector<std::int32_t> slots;
  for (std::int64_t t = 0; t < tokens; ++t) slots.push_back(t % 3 == 1 ? 0 : static_cast<std::int32_t>(17 + t));
  return int_tensor({tokens}, slots);
}

std::vector<HostTensor> make_operands(DType dtype, std::int64_t tokens, const Routing& r) {
  std::vector<HostTensor> operands = {random_tensor(dtype, {tokens, r.experts}, 1, -4, 4), slots_of(tokens)};
  if (r.correction) operands.push_back(random_tensor(DType::kFloat32, {r.experts}, 2, -0.5, 0.5));
  if (r.expert_scale) operands.push_back(random_tensor(DType::kFloat32, {r.experts}, 3, 0.5, 2));
  return operands;
}

// Returns the indices of the `count` greatest values. The index of the greatest value comes first. Indices of equal
// values are in ascending order.
std::vector<std::size_t> greatest(const std::vector<double>& values, std::int64_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(static_cast<std::size_t>(count));
  return order;
}

struct Routed {
  std::vector<double> ids;
  std::vector<double> weights;
};

void route_row(const std::vector<HostTensor>& operands, const Routing& r, std::int64_t row, Routed& out) {
  const auto experts = static_cast<std::size_t>(r.experts);
  std::vector<double> scores;
  double sum = 0;
  for (std::int64_t e = 0; e < r.experts; ++e) {
    const double logit = operands[0].at(row * r.experts + e);
    scores.push_back(r.scoring == "sigmoid" ? 1 / (1 + std::exp(-logit)) : std::exp(logit));
    sum += scores.back();
  }
  if (r.scoring == "softmax")
    for (double& score : scores) score /= sum;
  std::vector<double> choice = scores;
  if (r.correction)
    for (std::size_t e = 0; e < experts; ++e) choice[e] += operands[2].at(static_cast<std::int64_t>(e));

  std::vector<double> of_group;
  const auto size = static_cast<std::size_t>(r.experts / r.groups);
  for (std::size_t g = 0; g < experts / size; ++g) {
    std::vector<double> members(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::sort(members.rbegin(), members.rend());
    of_group.push_back(r.group_score == "best_two" ? members[0] + members[1] : members[0]);
  }
  const std::vector<std::size_t> kept = greatest(of_group, r.groups_per_token);
  for (std::size_t e = 0; e < experts; ++e)
    if (std::find(kept.begin(), kept.end(), e / size) == kept.end()) choice[e] = -1e30;

  const std::vector<std::size_t> chosen = greatest(choice, r.top_k);
  double total = 0;
  for (const std::size_t e : chosen) total += scores[e];
  for (const std::size_t e : chosen) {
    out.ids.push_back(static_cast<double>(e));
    out.weights.push_back(scores[e] / (r.normalise ? total : 1) * r.scale);
    if (r.expert_scale) out.weights.back() *= operands.back().at(static_cast<std::int64_t>(e));
  }
}

Routed reference(const std::vector<HostTensor>& operands, const Routing& r) {
  Routed out;
  for (std::int64_t row = 0; row < operands[0].dims[0]; ++row) {
    if (operands[1].at(row) != 0) {
      route_row(operands, r, row, out);
    } else {
      out.ids.insert(out.ids.end(), static_cast<std::size_t>(r.top_k), -1.0);
      out.weights.insert(out.weights.end(), static_cast<std::size_t>(r.top_k), 0.0);
    }
  }
  return out;
}

// The routings of Mixtral, Qwen3-MoE, GPT-OSS, GLM-4-MoE, DeepSeek-V2 and -V3, and Gemma 4, and sizes that are not a
// multiple of a warp or vector.
const Routing kRoutings[] = {
    {.experts = 8, .top_k = 2, .normalise = true},
    {.experts = 128, .top_k = 8, .normalise = true},
    {.experts = 60, .top_k = 4},
    {.experts = 32, .top_k = 4, .normalise = true},
    {.experts = 160, .top_k = 8, .scoring = "sigmoid", .normalise = true, .scale = 2.5, .correction = true},
    {.experts = 160, .top_k = 6, .groups = 8, .groups_per_token = 3, .scale = 16},
    {.experts = 256,
     .top_k = 8,
     .scoring = "sigmoid",
     .normalise = true,
     .groups = 8,
     .groups_per_token = 4,
     .group_score = "best_two",
     .scale = 2.5,
     .correction = true},
    {.experts = 12, .top_k = 3, .scoring = "sigmoid", .groups = 3, .groups_per_token = 2, .group_score = "best_two"},
    {.experts = 128, .top_k = 8, .normalise = true, .expert_scale = true},
    {.experts = 33, .top_k = 5, .scoring = "sigmoid", .correction = true, .expert_scale = true},
    {.experts = 1, .top_k = 1},
    {.experts = 7, .top_k = 7},
    {.experts = 1024, .top_k = 64, .normalise = true},
};

class MoeRoute : public ::testing::TestWithParam<DType> {};

TEST_P(MoeRoute, MatchesTheReference) {
  for (const Routing& r : kRoutings)
    for (const std::int64_t tokens : {1, 2, 37}) {
      const std::string what =
          "moe_route " + std::to_string(tokens) + "x" + std::to_string(r.experts) + " " + r.scoring;
      const std::vector<HostTensor> operands = make_operands(GetParam(), tokens, r);
      const OpOutcome out = run_op(kMoeRoute, kMoeRouteCpu, operands, r.attributes());
      const Routed expected = reference(operands, r);
      EXPECT_EQ(out.results[0].values(), expected.ids) << what;
      expect_close(out.results[1], expected.weights, {1e-7, 1e-5}, what);
    }
}

TEST_P(MoeRoute, EqualScoresTakeTheLowerIndex) {
  HostTensor logits = filled_tensor(GetParam(), {2, 16}, 0.5);
  logits.set(16 + 9, 2.0);
  const HostTensor slots = int_tensor({2}, {4, 5});
  const OpOutcome plain = run_op(kMoeRoute, kMoeRouteCpu, {logits, slots}, {{"top_k", std::int64_t{3}}});
  EXPECT_EQ(plain.results[0].values(), (std::vector<double>{0, 1, 2, 9, 0, 1}));
  const OpOutcome grouped = run_op(kMoeRoute, kMoeRouteCpu, {logits, slots},
                                   {{"top_k", std::int64_t{3}},
                                    {"groups", std::int64_t{4}},
                                    {"groups_per_token", std::int64_t{2}},
                                    {"group_score", std::string("best_two")}});
  EXPECT_EQ(grouped.results[0].values(), (std::vector<double>{0, 1, 2, 9, 0, 1}));
}

// The correction affects which experts are chosen, and is not part of their weights.
TEST(MoeRouting, CorrectionAffectsOnlyTheChoice) {
  const HostTensor logits = make_tensor(DType::kFloat32, {1, 4}, std::vector<double>{0, 1, 2, 3});
  const HostTensor correction = make_tensor(DType::kFloat32, {4}, std::vector<double>{10, 0, 0, -10});
  const OpOutcome out = run_op(kMoeRoute, kMoeRouteCpu, {logits, int_tensor({1}, {9}), correction},
                               {{"top_k", std::int64_t{2}}, {"scoring", std::string("sigmoid")}, {"correction", true}});
  EXPECT_EQ(out.results[0].values(), (std::vector<double>{0, 2}));
  expect_close(out.results[1], std::vector<double>{0.5, 1 / (1 + std::exp(-2.0))}, {1e-7, 1e-6}, "weights");
}

// The choice is among all experts. A rank keeps the chosen experts that it holds, and counts ids from its first expert.
TEST_P(MoeRoute, ChoosesAmongAllExpertsAndKeepsItsPart) {
  for (const Routing& r : kRoutings) {
    const std::vector<HostTensor> operands = make_operands(GetParam(), 23, r);
    const OpOutcome all = run_op(kMoeRoute, kMoeRouteCpu, operands, r.attributes());
    const std::int64_t first = r.experts / 3;
    for (const auto& [begin, count] :
         {std::pair{std::int64_t{0}, std::max<std::int64_t>(first, 1)}, std::pair{first, r.experts - first},
          std::pair{r.experts - 1, std::int64_t{1}}}) {
      ir::Attributes attributes = r.attributes();
      attributes.emplace_back("first_expert", begin);
      attributes.emplace_back("local_experts", count);
      const OpOutcome part = run_op(kMoeRoute, kMoeRouteCpu, operands, attributes);
      for (std::int64_t i = 0; i < all.results[0].size(); ++i) {
        const double local = all.results[0].at(i) - static_cast<double>(begin);
        const bool here = all.results[0].at(i) >= 0 && local >= 0 && local < static_cast<double>(count);
        EXPECT_EQ(part.results[0].at(i), here ? local : -1) << i << " of " << r.experts << " from " << begin;
        EXPECT_EQ(part.results[1].at(i), here ? all.results[1].at(i) : 0) << i << " of " << r.experts;
      }
    }
  }
}

// NaN in the logits of a real row gives NaN weights, but ids of experts that exist. NaN in a padded row changes
// nothing.
TEST_P(MoeRoute, NanStaysInItsRow) {
  const Routing r{.experts = 40, .top_k = 4, .normalise = true};
  std::vector<HostTensor> operands = make_operands(GetParam(), 4, r);
  const Routed expected = reference(operands, r);
  for (std::int64_t e = 0; e < r.experts; ++e) operands[0].set(r.experts + e, std::nan(""));  // padding
  for (std::int64_t e = 0; e < r.experts; ++e) operands[0].set(3 * r.experts + e, std::nan(""));
  const OpOutcome out = run_op(kMoeRoute, kMoeRouteCpu, operands, r.attributes());
  for (std::int64_t i = 0; i < 3 * r.top_k; ++i)
    EXPECT_EQ(out.results[0].at(i), expected.ids[static_cast<std::size_t>(i)]) << i;
  for (std::int64_t k = 0; k < r.top_k; ++k) {
    EXPECT_EQ(out.results[1].at(r.top_k + k), 0) << "padding";
    EXPECT_EQ(out.results[0].at(3 * r.top_k + k), static_cast<double>(k));
    EXPECT_TRUE(std::isnan(out.results[1].at(3 * r.top_k + k)));
  }
}

TEST_P(MoeRoute, RowsAreIndependentAndZeroRowsAreAccepted) {
  for (const Routing& r : kRoutings) {
    const std::vector<HostTensor> operands = make_operands(GetParam(), 9, r);
    expect_any_row_count(kMoeRoute, kMoeRouteCpu, operands, {0, 1}, {1, 2, 5}, r.attributes());
  }
  EXPECT_EQ(run_op(kMoeRoute, kMoeRouteCpu, make_operands(GetParam(), 0, {}), Routing{}.attributes()).results[0].size(),
            0);
}

INSTANTIATE_TEST_SUITE_P(Types, MoeRoute, ::testing::Values(DType::kFloat32, DType::kBFloat16, DType::kFloat16),
                         [](const auto& test) { return std::string(ir::dtype_name(test.param)); });

TEST(MoeRouteShapes, RefusesOperandsThatDoNotFit) {
  const ir::Type logits{DType::kBFloat16, {ir::Symbol::kTokens, 8}};
  const ir::Type slots{DType::kInt32, {ir::Symbol::kTokens}};
  const ir::Type of_experts{DType::kFloat32, {8}};
  const auto error = [&](Routing r, std::vector<ir::Type> operands) {
    return infer_error(kMoeRoute, operands, r.attributes());
  };
  EXPECT_EQ(error({}, {logits, slots}), "");
  EXPECT_EQ(error({.correction = true, .expert_scale = true}, {logits, slots, of_experts, of_experts}), "");
  EXPECT_THAT(error({.top_k = 9}, {logits, slots}), HasSubstr("top_k = 9; it must be 1 to 8"));
  EXPECT_THAT(error({.top_k = 0}, {logits, slots}), HasSubstr("top_k = 0"));
  EXPECT_THAT(error({.scoring = "relu"}, {logits, slots}), HasSubstr("scoring = \"relu\""));
  EXPECT_THAT(error({.group_score = "all"}, {logits, slots}), HasSubstr("group_score = \"all\""));
  EXPECT_THAT(error({.groups = 3}, {logits, slots}), HasSubstr("groups = 3; it must divide the 8 experts"));
  EXPECT_THAT(error({.groups = 2, .groups_per_token = 3}, {logits, slots}), HasSubstr("groups_per_token = 3"));
  EXPECT_THAT(error({.top_k = 5, .groups = 2}, {logits, slots}), HasSubstr("at most 4, the experts of 1 groups"));
  EXPECT_THAT(error({.top_k = 1, .groups = 8, .group_score = "best_two"}, {logits, slots}), HasSubstr("best_two"));
  EXPECT_THAT(error({.correction = true}, {logits, slots}), HasSubstr("take 3 operands, not 2"));
  EXPECT_THAT(error({.correction = true}, {logits, slots, slots}), HasSubstr("correction is i32[T]"));
  EXPECT_THAT(error({}, {logits, of_experts}), HasSubstr("slots is f32[8]; it must be i32[T]"));
  EXPECT_THAT(error({.scale = std::nan("")}, {logits, slots}), HasSubstr("scale must be finite"));
  const auto part = [&](std::int64_t first, std::int64_t local) {
    ir::Attributes attributes = Routing{}.attributes();
    attributes.emplace_back("first_expert", first);
    attributes.emplace_back("local_experts", local);
    return infer_error(kMoeRoute, {logits, slots}, attributes);
  };
  EXPECT_EQ(part(4, 4), "");
  EXPECT_THAT(part(4, 5), HasSubstr("first_expert = 4 and local_experts = 5; they must be a range of the 8 experts"));
  EXPECT_THAT(part(-1, 4), HasSubstr("first_expert = -1"));
  EXPECT_THAT(part(0, 0), HasSubstr("local_experts = 0"));
  const ir::Type many{DType::kBFloat16, {ir::Symbol::kTokens, 1025}};
  EXPECT_THAT(error({}, {many, slots}), HasSubstr("1025 experts; it takes at most 1024"));
}

}  // namespace
}  // namespace tessera::testing
