#include "tessera/ops/moe/moe_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

Status expect_word(const ir::OpSignature& s, std::string_view attribute, std::string_view first,
                   std::string_view second) {
  const std::string word = string_attribute(s.node, attribute, first);
  if (word == first || word == second) return ok_status();
  return refuse(s, fmt::format("{} = \"{}\"; it must be \"{}\" or \"{}\"", attribute, word, first, second));
}

Status check_groups(const ir::OpSignature& s, std::int64_t experts, std::int64_t top_k) {
  const std::int64_t groups = s.node.attribute_or("groups", std::int64_t{1});
  const std::int64_t kept = s.node.attribute_or("groups_per_token", std::int64_t{1});
  if (groups < 1 || experts % groups != 0)
    return refuse(s, fmt::format("groups = {}; it must divide the {} experts", groups, experts));
  if (kept < 1 || kept > groups)
    return refuse(s, fmt::format("groups_per_token = {}; it must be 1 to {}", kept, groups));
  if (top_k > experts / groups * kept)
    return refuse(s, fmt::format("top_k = {}; it must be at most {}, the experts of {} groups", top_k,
                                 experts / groups * kept, kept));
  if (string_attribute(s.node, "group_score", "best") == "best_two" && experts / groups < 2)
    return refuse(
        s, fmt::format("groups = {}; groups of \"best_two\" must have 2 of the {} experts or more", groups, experts));
  return ok_status();
}

Status check_local(const ir::OpSignature& s, std::int64_t experts) {
  const std::int64_t first = s.node.attribute_or("first_expert", std::int64_t{0});
  const std::int64_t local = s.node.attribute_or("local_experts", experts);
  if (first >= 0 && local >= 1 && first <= experts - local) return ok_status();
  return refuse(s, fmt::format("first_expert = {} and local_experts = {}; they must be a range of the {} experts",
                               first, local, experts));
}

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  TRY(expect_floating(s, 0, "logits"));
  TRY(expect_rank(s, 0, "logits", 2));
  const std::int64_t experts = TRY(constant_cols(s, 0, "logits"));
  const ir::Dim tokens = s.operands[0].shape[0];
  TRY(expect_type(s, 1, "slots", {ir::DType::kInt32, {tokens}}));
  const bool correction = s.node.attribute_or("correction", false);
  const bool expert_scale = s.node.attribute_or("expert_scale", false);
  const std::size_t expected = 2 + std::size_t{correction} + std::size_t{expert_scale};
  if (s.operands.size() != expected)
    return refuse(s, fmt::format("correction = {} and expert_scale = {} take {} operands, not {}", correction,
                                 expert_scale, expected, s.operands.size()));
  for (std::size_t i = 2; i < expected; ++i)
    TRY(expect_type(s, i, i == 2 && correction ? "correction" : "expert_scale", {ir::DType::kFloat32, {experts}}));

  TRY(check_local(s, experts));
  const std::int64_t top_k = s.node.attribute_or("top_k", std::int64_t{0});
  if (experts > kMaxExperts) return refuse(s, fmt::format("{} experts; it takes at most {}", experts, kMaxExperts));
  const std::int64_t most = std::min(experts, kMaxExpertsPerToken);
  if (top_k < 1 || top_k > most) return refuse(s, fmt::format("top_k = {}; it must be 1 to {}", top_k, most));
  TRY(expect_word(s, "scoring", "softmax", "sigmoid"));
  TRY(expect_word(s, "group_score", "best", "best_two"));
  TRY(check_groups(s, experts, top_k));
  if (!std::isfinite(s.node.attribute_or("scale", 1.0))) return refuse(s, "scale must be finite");
  return std::vector<ir::Type>{{ir::DType::kInt32, {tokens, top_k}}, {ir::DType::kFloat32, {tokens, top_k}}};
}

// Computes scores = softmax(logits) or sigmoid(logits) of one row.
template <class T>
TESSERA_CPU_CLONES void score_row(const T* logits, float* scores, std::int64_t experts, bool use_sigmoid) {
  if (use_sigmoid) {
#pragma omp simd
    for (std::int64_t e = 0; e < experts; ++e) scores[e] = sigmoid(to_float(logits[e]));
    return;
  }
  float greatest = kLowest;
#pragma omp simd reduction(max : greatest)
  for (std::int64_t e = 0; e < experts; ++e) {
    const float logit = to_float(logits[e]);
    greatest = logit > greatest ? logit : greatest;
  }
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t e = 0; e < experts; ++e) {
    scores[e] = fast_exp(to_float(logits[e]) - greatest);
    sum += scores[e];
  }
#pragma omp simd
  for (std::int64_t e = 0; e < experts; ++e) scores[e] /= sum;
}

// Computes the scores by which experts are chosen. NaN is replaced, because it would win or lose depending on the order
// of comparisons.
void choice_row(const RouteProblem& p, const float* scores, float* choice) {
  for (std::int64_t e = 0; e < p.experts; ++e) {
    const float c = p.correction != nullptr ? scores[e] + p.correction[e] : scores[e];
    choice[e] = std::isnan(c) ? kLowest : c;
  }
}

// Returns the index of the greatest of values[0 … count) that is not taken yet, and marks it as taken. Among equal
// values the lowest index wins.
std::int64_t take_greatest(const float* values, bool* taken, std::int64_t count) {
  std::int64_t best = -1;
  for (std::int64_t i = 0; i < count; ++i)
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  taken[best] = true;
  return best;
}

// Marks the experts outside the best groups as taken, so that they cannot be chosen.
void exclude_groups(const RouteProblem& p, const float* choice, bool* taken) {
  const std::int64_t size = p.experts / p.groups;
  float scores[kMaxExperts];
  for (std::int64_t g = 0; g < p.groups; ++g) {
    float first = kLowest;
    float second = kLowest;
    for (std::int64_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, choice[e]));
      first = std::max(first, choice[e]);
    }
    scores[g] = p.best_two ? first + second : first;
  }
  bool kept[kMaxExperts] = {};
  for (std::int64_t i = 0; i < p.groups_per_token; ++i) (void)take_greatest(scores, kept, p.groups);
  for (std::int64_t e = 0; e < p.experts; ++e) taken[e] = !kept[e / size];
}

void route_row(const RouteProblem& p, const float* scores, std::int32_t* ids, float* weights) {
  float choice[kMaxExperts];
  bool taken[kMaxExperts] = {};
  choice_row(p, scores, choice);
  if (p.groups_per_token < p.groups) exclude_groups(p, choice, taken);
  float sum = 0;
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    const std::int64_t expert = take_greatest(choice, taken, p.experts);
    ids[k] = static_cast<std::int32_t>(expert);
    weights[k] = scores[expert];
    sum += weights[k];
  }
  const float factor = p.normalise ? p.scale / (sum + 1e-20F) : p.scale;
  for (std::int64_t k = 0; k < p.top_k; ++k) {
    weights[k] *= factor;
    if (p.expert_scale != nullptr) weights[k] *= p.expert_scale[ids[k]];
    const std::int64_t local = ids[k] - p.first_expert;
    const bool here = local >= 0 && local < p.local_experts;
    ids[k] = here ? static_cast<std::int32_t>(local) : -1;
    if (!here) weights[k] = 0;
  }
}

template <class T>
void route_rows(const RouteProblem& p, const T* logits, std::int64_t begin, std::int64_t end) {
  float scores[kMaxExperts];
  for (std::int64_t t = begin; t < end; ++t) {
    std::int32_t* ids = p.ids + t * p.top_k;
    float* weights = p.weights + t * p.top_k;
    if (p.slots[t] == 0) {
      std::fill(ids, ids + p.top_k, -1);
      std::fill(weights, weights + p.top_k, 0.0F);
      continue;
    }
    score_row(logits + t * p.experts, scores, p.experts, p.sigmoid);
    route_row(p, scores, ids, weights);
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "moe_route", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const RouteProblem p = make_route_problem(args);
    const T* logits = args.operands[0].as<T>();
    // Routing a row takes about as long as top_k + 4 passes over the row's scores.
    const std::int64_t row_bytes = p.experts * (p.top_k + 4) * static_cast<std::int64_t>(sizeof(float));
    return make_cpu_op("moe_route", [=] {
      parallel_rows(p.tokens, row_bytes,
                    [&](std::int64_t begin, std::int64_t end) { route_rows(p, logits, begin, end); });
    });
  });
}

}  // namespace

RouteProblem make_route_problem(const BindArgs& args) {
  const ir::Node& node = args.node;
  RouteProblem p{.tokens = args.operands[0].dim(0),
                 .experts = args.operands[0].dim(1),
                 .top_k = args.results[0].dim(1),
                 .sigmoid = string_attribute(node, "scoring", "softmax") == "sigmoid",
                 .normalise = node.attribute_or("normalise", false),
                 .groups = node.attribute_or("groups", std::int64_t{1}),
                 .groups_per_token = node.attribute_or("groups_per_token", std::int64_t{1}),
                 .best_two = string_attribute(node, "group_score", "best") == "best_two",
                 .scale = static_cast<float>(node.attribute_or("scale", 1.0)),
                 .first_expert = node.attribute_or("first_expert", std::int64_t{0}),
                 .local_experts = node.attribute_or("local_experts", args.operands[0].dim(1)),
                 .slots = args.operands[1].as<std::int32_t>(),
                 .ids = args.results[0].as<std::int32_t>(),
                 .weights = args.results[1].as<float>()};
  std::size_t next = 2;
  if (node.attribute_or("correction", false)) p.correction = args.operands[next++].as<float>();
  if (node.attribute_or("expert_scale", false)) p.expert_scale = args.operands[next].as<float>();
  return p;
}

const ir::OpDecl kMoeRoute{
    .name = "moe_route",
    .summary = "each token's top_k experts and their weights: logits [T, E] -> i32[T, K], f32[T, K]; none at slot 0",
    .operands = {{.name = "logits"},
                 {.name = "slots"},
                 {.name = "correction", .optional = true},
                 {.name = "expert_scale", .optional = true}},
    .attributes = {{.name = "top_k", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "scoring", .kind = ir::AttributeKind::kString},
                   {.name = "normalise", .kind = ir::AttributeKind::kBool},
                   {.name = "groups", .kind = ir::AttributeKind::kInt},
                   {.name = "groups_per_token", .kind = ir::AttributeKind::kInt},
                   {.name = "group_score", .kind = ir::AttributeKind::kString},
                   {.name = "scale", .kind = ir::AttributeKind::kDouble},
                   {.name = "correction", .kind = ir::AttributeKind::kBool},
                   {.name = "expert_scale", .kind = ir::AttributeKind::kBool},
                   {.name = "first_expert", .kind = ir::AttributeKind::kInt},
                   {.name = "local_experts", .kind = ir::AttributeKind::kInt}},
    .infer = infer,
    .rows = ir::RowUse::kByRow,
};

const KernelDef kMoeRouteCpu{.op = "moe_route", .name = "cpu", .bind = bind};

}  // namespace tessera
