#include "tessera/compile/passes/fused_forms.h"

#include <algorithm>

#include "tessera/ops/cache/cache_type.h"

namespace tessera {
namespace {

using ir::DType;
using ir::Symbol;

// Computes the number of query heads. The columns of qkv hold the query heads, the key heads and the value heads. The
// cache's shape gives the number of key heads, which is also the number of value heads.
void derive_heads(std::span<const ir::Type> operands, ir::Attributes& attributes) {
  if (operands[0].shape.size() != 2 || operands[3].shape.size() != 4) return;
  const auto cols = operands[0].shape[1].constant();
  const auto kv_heads = operands[3].shape[2].constant();
  const std::int64_t head_dim = cache_head_dim(operands[3].dtype, operands[3].shape[3].constant().value_or(0));
  if (cols && kv_heads && head_dim > 0) attributes.emplace_back("heads", *cols / head_dim - 2 * *kv_heads);
}

// Builds a linear without the attribute `term` and without the last operand. Then builds an add that adds this operand.
Result<std::vector<ir::ValueId>> add_last(ir::GraphBuilder& b, const ir::Node& node,
                                          std::span<const ir::ValueId> operands, std::string_view term) {
  ir::Attributes attributes = node.attributes;
  std::erase_if(attributes, [&](const auto& attribute) { return attribute.first == term; });
  const ir::ValueId y = b.op("linear", {operands.begin(), operands.end() - 1}, attributes);
  return std::vector{b.op("add", {y, operands.back()})};
}

Result<std::vector<ir::ValueId>> linear_then_bias(ir::GraphBuilder& b, const ir::Node& node,
                                                  std::span<const ir::ValueId> operands) {
  return add_last(b, node, operands, "bias");
}

Result<std::vector<ir::ValueId>> linear_then_residual(ir::GraphBuilder& b, const ir::Node& node,
                                                      std::span<const ir::ValueId> operands) {
  return add_last(b, node, operands, "residual");
}

std::vector<FusedForm> make_forms() {
  const ir::Type x{DType::kFloat32, {Symbol::kTokens, 8}};
  const ir::Type row{DType::kFloat32, {8}};
  const ir::Type matrix{DType::kFloat32, {8, 8}};
  const ir::Type head{DType::kFloat32, {4}};
  const ir::Type qkv{DType::kFloat32, {Symbol::kTokens, 16}};  // 2 query heads, 1 key head and 1 value head, of size 4
  const ir::Type table{DType::kFloat32, {Symbol::kTokens, 4}};
  const ir::Type slots{DType::kInt32, {Symbol::kTokens}};
  const ir::Type cache{DType::kFloat32, {Symbol::kPages, 16, 1, 4}};
  const ir::Type float8_cache{DType::kFloat8E4M3, cache.shape};
  const ir::Type scale{DType::kFloat32, {1}};
  const std::pair<std::string, ir::Attribute> eps{"eps", 1e-6};
  const std::pair<std::string, ir::Attribute> heads{"heads", std::int64_t{2}};
  return {
      {.op = "head_norm", .operands = {x, head}, .attributes = {eps}},
      {.op = "qkv_rope_store",
       .operands = {qkv, table, slots, cache, cache, head, head},
       .attributes = {eps, heads, {"qk_norm", true}},
       .derive = derive_heads},
      {.op = "qkv_rope_store",
       .operands = {qkv, table, slots, cache, cache},
       .attributes = {heads},
       .derive = derive_heads},
      {.op = "qkv_rope_store",
       .operands = {qkv, table, slots, float8_cache, float8_cache, head, head, scale, scale},
       .attributes = {eps, heads, {"qk_norm", true}},
       .derive = derive_heads},
      {.op = "qkv_rope_store",
       .operands = {qkv, table, slots, float8_cache, float8_cache, scale, scale},
       .attributes = {heads},
       .derive = derive_heads},
      {.op = "add_rms_norm", .operands = {x, x, row}, .attributes = {eps}},
      {.op = "silu_mul", .operands = {x}, .attributes = {}},
      {.op = "gelu_mul", .operands = {x}, .attributes = {}},
      // The forms below come after those above, so that an addition before a norm is already part of add_rms_norm.
      {.op = "linear", .operands = {x, matrix, row}, .attributes = {{"bias", true}}, .decompose = linear_then_bias},
      {.op = "linear",
       .operands = {x, matrix, x},
       .attributes = {{"residual", true}},
       .decompose = linear_then_residual},
      {.op = "linear",
       .operands = {x, matrix, row, x},
       .attributes = {{"bias", true}, {"residual", true}},
       .decompose = linear_then_residual},
  };
}

}  // namespace

std::span<const FusedForm> fused_forms() {
  static const std::vector<FusedForm> kForms = make_forms();
  return kForms;
}

}  // namespace tessera
