// A small set of operators, and random graphs over them, for the tests of this folder.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/builder.h"
#include "tessera/ir/op_decl.h"

namespace tessera::ir {

namespace test_ops {

inline Result<std::vector<Type>> like_first(const OpSignature& s) { return std::vector<Type>{s.operands[0]}; }
inline Result<std::vector<Type>> like_first_twice(const OpSignature& s) {
  return std::vector<Type>{s.operands[0], s.operands[0]};
}
inline Result<std::vector<Type>> nothing(const OpSignature&) { return std::vector<Type>{}; }
inline Result<std::vector<Type>> embedding(const OpSignature& s) {
  if (s.operands[0].dtype != DType::kInt32 || s.operands[0].shape.size() != 1 || s.operands[1].shape.size() != 2) {
    return invalid_argument("ids must be i32[n], the table [rows, columns]");
  }
  return std::vector<Type>{{s.operands[1].dtype, {s.operands[0].shape[0], s.operands[1].shape[1]}}};
}
inline Result<std::vector<Type>> linear(const OpSignature& s) {
  const Type& x = s.operands[0];
  const Type& weight = s.operands[1];
  if (x.shape.size() != 2 || weight.shape.size() != 2 || x.shape[1] != weight.shape[1]) {
    return invalid_argument("x is " + x.to_string() + " and weight " + weight.to_string() + ": columns must agree");
  }
  return std::vector<Type>{{x.dtype, {x.shape[0], weight.shape[0]}}};
}
inline Result<std::vector<Type>> split_columns(const OpSignature& s) {
  const Type& x = s.operands[0];
  const std::int64_t by = s.node.attribute_or("by", std::int64_t{1});
  if (by < 1 || x.shape.size() != 2) return invalid_argument("by must be above 0, x [rows, columns]");
  return std::vector<Type>{{x.dtype, {x.shape[0] * by, x.shape[1].divided_by(by)}}};
}

inline const OpDecl kAdd{.name = "add", .summary = "x + y", .operands = {{"x"}, {"y"}}, .infer = like_first};
inline const OpDecl kAddRmsNorm{.name = "add_rms_norm",
                                .summary = "norm(x + residual) and the sum",
                                .operands = {{"x"}, {"residual"}, {"weight"}},
                                .attributes = {{"eps", AttributeKind::kDouble, true}},
                                .infer = like_first_twice};
inline const OpDecl kAttention{.name = "attention",
                               .summary = "attention over a cache",
                               .operands = {{"q"}, {"k_cache"}, {"v_cache"}, {.name = "out", .mutated = true}},
                               .attributes = {{"group", AttributeKind::kInt}, {"scale", AttributeKind::kDouble}},
                               .infer = nothing,
                               .capturable = false,
                               .split_by_default = true};
inline const OpDecl kEmbedding{
    .name = "embedding", .summary = "rows of a table", .operands = {{"ids"}, {"table"}}, .infer = embedding};
inline const OpDecl kEmptyLike{.name = "empty_like",
                               .summary = "memory like x",
                               .operands = {{"x"}},
                               .infer = like_first,
                               .execution = Execution::kAllocate};
inline const OpDecl kLinear{.name = "linear",
                            .summary = "x · weightᵀ + bias",
                            .operands = {{"x"}, {"weight"}, {.name = "bias", .optional = true}},
                            .infer = linear};
inline const OpDecl kMark{.name = "mark",
                          .summary = "x, with attributes of all kinds",
                          .operands = {{"x"}},
                          .attributes = {{"flag", AttributeKind::kBool},
                                         {"number", AttributeKind::kInt},
                                         {"factor", AttributeKind::kDouble},
                                         {"label", AttributeKind::kString},
                                         {"list", AttributeKind::kInts}},
                          .infer = like_first};
inline const OpDecl kSplitColumns{.name = "split_columns",
                                  .summary = "x as [rows·by, columns/by]",
                                  .operands = {{"x"}},
                                  .attributes = {{"by", AttributeKind::kInt}},
                                  .infer = split_columns,
                                  .execution = Execution::kView};
inline const OpDecl kStore{.name = "store",
                           .summary = "writes x into y",
                           .operands = {{"x"}, {.name = "y", .mutated = true}},
                           .infer = nothing};

}  // namespace test_ops

inline OpTable test_op_table() {
  using namespace test_ops;
  return OpTable(
      {&kAdd, &kAddRmsNorm, &kAttention, &kEmbedding, &kEmptyLike, &kLinear, &kMark, &kSplitColumns, &kStore});
}

// A forward of two layers that uses every feature of the text form, in canonical text.
inline constexpr const char* kLlamaText = R"(graph @llama {
  group "full" paged layers [0, 2]
  group "window.8" window 8 layers [1]
  input %input_ids: i32[T]
  input %out_rows: i32[R]
  weight %model.embed_tokens.weight: bf16[128, 64]
  weight %model.norm.weight: bf16[64]
  weight %q.weight: bf16[64, 64]
  state %k_cache.0: bf16[P, 16, 2, 16]
  state %v_cache.0: bf16[P, 16, 2, 16]
  %embedding: bf16[T, 64] = embedding(%input_ids, %model.embed_tokens.weight)
  %q: bf16[T, 64] = linear(%embedding, %q.weight)
  %heads: bf16[4*T, 16] = split_columns(%q) {by = 4}
  store(%heads, mut %k_cache.0)
  %attn: bf16[T, 64] = empty_like(%q)
  attention(%q, %k_cache.0, %v_cache.0, mut %attn) {group = 0, scale = 0.25}
  %normed: bf16[T, 64], %sum: bf16[T, 64] = add_rms_norm(%attn, %embedding, %model.norm.weight) {eps = 1e-06}
  %marked: bf16[T, 64] = mark(%normed) {factor = -2.0, flag = true, label = "a \"b\"", list = [1, -2], number = 7}
  return %marked, %sum
}
)";

// Makes random graphs that verify() accepts, as a function of the generator's state. Names, strings and numbers are as
// unusual as the rules allow.
class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937_64& random) : random_(random) {}

  std::string odd_text(std::size_t most) {
    std::string text;
    for (std::size_t i = below(most + 1); i > 0; --i) {
      text += below(2) == 0 ? static_cast<char>('a' + below(26)) : static_cast<char>(below(256));
    }
    return text;
  }
  double odd_double() {
    const double usual[] = {0.0, -0.0, 1.0, 0.1, 1e-6, 1e300, -5e-324};
    return below(2) == 0 ? usual[below(std::size(usual))] : std::bit_cast<double>(random_());
  }

  Graph make(const OpTable& ops, int nodes) {
    GraphBuilder b(odd_text(6), ops);
    const Type hidden{DType::kBFloat16, {Symbol::kTokens, 64}};
    b.cache_group({.name = odd_text(5), .kind = CacheGroup::Kind::kWindow, .window = 4096, .layers = {0, 1}});
    std::vector<ValueId> pool = {b.input("x" + odd_text(4), hidden)};
    const ValueId state = b.state("state", hidden);
    for (int i = 0; i < nodes; ++i) {
      b.scope(below(3) == 0 ? "s" + odd_text(5) : "");
      const ValueId x = pool[below(pool.size())];
      const ValueId y = pool[below(pool.size())];
      switch (below(7)) {
        case 0: pool.push_back(b.op("add", {x, y})); break;
        case 1:
          pool.push_back(b.op("linear", {x, b.weight(std::to_string(below(9)), {DType::kBFloat16, {64, 64}})}));
          break;
        case 2: {
          const auto both = b.multi_op("add_rms_norm", {x, y, x}, {{"eps", odd_double()}});
          pool.insert(pool.end(), both.begin(), both.begin() + 2);
          break;
        }
        case 3: b.op("store", {x, state}); break;
        case 4: b.op("split_columns", {x}, {{"by", std::int64_t{1} << below(6)}}); break;
        case 5: {
          const ValueId out = b.op("empty_like", {x});
          b.op("attention", {x, state, state, out}, {{"scale", odd_double()}, {"group", 0}});
          pool.push_back(out);
          break;
        }
        default: pool.push_back(b.op("mark", {x}, odd_attributes()));
      }
    }
    for (std::size_t i = below(3); i > 0; --i) b.output(pool[below(pool.size())]);
    Result<Graph> graph = b.finish();
    return graph.ok() ? *std::move(graph) : Graph{.name = graph.status().message()};
  }

 private:
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

  Attributes odd_attributes() {
    Attributes attributes;
    if (below(2) == 0) attributes.emplace_back("number", static_cast<std::int64_t>(random_()));
    if (below(2) == 0) attributes.emplace_back("label", odd_text(20));
    if (below(2) == 0) attributes.emplace_back("flag", below(2) == 0);
    if (below(2) == 0) attributes.emplace_back("factor", odd_double());
    if (below(2) == 0)
      attributes.emplace_back("list", std::vector<std::int64_t>(below(4), static_cast<std::int64_t>(random_())));
    return attributes;
  }

  std::mt19937_64& random_;
};

}  // namespace tessera::ir
