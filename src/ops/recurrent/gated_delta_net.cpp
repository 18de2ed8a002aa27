#include "tessera/ops/recurrent/gated_delta_net.h"

#include <fmt/format.h>

#include "tessera/ops/contract/shape_rule.h"

namespace tessera {
namespace {

Status check_state(const ir::OpSignature& s) {
  const ir::Type& state = s.operands[4];
  TRY(expect_rank(s, 4, "state", 4));
  if (state.dtype != ir::DType::kFloat32) return refuse(s, fmt::format("state is {}, not f32", state.to_string()));
  for (std::size_t i = 1; i < 4; ++i)
    if (state.shape[i].constant().value_or(0) < 1)
      return refuse(s, fmt::format("state {} needs constant heads and sizes", state.to_string()));
  return ok_status();
}

Result<std::vector<ir::Type>> infer_gated_delta_net(const ir::OpSignature& s) {
  const ir::Type& qkv = s.operands[0];
  TRY(expect_floating(s, 0, "qkv"));
  TRY(expect_rank(s, 0, "qkv", 2));
  TRY(check_state(s));
  const ir::Shape& state = s.operands[4].shape;
  const std::int64_t heads = *state[1].constant();
  const std::int64_t key_heads = s.node.attribute_or("key_heads", std::int64_t{0});
  if (key_heads < 1 || heads % key_heads != 0)
    return refuse(s, fmt::format("key_heads is {}; accepted: a divisor of the {} value heads", key_heads, heads));
  const std::int64_t values = heads * *state[3].constant();
  TRY(expect_type(s, 0, "qkv", {qkv.dtype, {qkv.shape[0], 2 * key_heads * *state[2].constant() + values}}));
  TRY(expect_type(s, 1, "ba", {qkv.dtype, {qkv.shape[0], 2 * heads}}));
  TRY(expect_type(s, 2, "a_log", {ir::DType::kFloat32, {heads}}));
  TRY(expect_type(s, 3, "dt_bias", {ir::DType::kFloat32, {heads}}));
  const std::int64_t drafts = s.node.attribute_or("drafts", std::int64_t{0});
  if (drafts < 0 || (drafts > 0) != (s.operands.size() == 6))
    return refuse(s, fmt::format("drafts = {} with {} operands; it must be 0 with 5 operands, and at least 1 with 6",
                                 drafts, s.operands.size()));
  const DraftLayout layout{.drafts = static_cast<int>(drafts),
                           .keys = static_cast<int>(key_heads * *state[2].constant()),
                           .gates = static_cast<int>(2 * heads),
                           .values = static_cast<int>(values)};
  if (drafts > 0) TRY(expect_type(s, 5, "draft_rows", {qkv.dtype, {state[0], layout.size()}}));
  if (s.node.attribute_or("group", std::int64_t{0}) < 0) return refuse(s, "group is negative; groups count from 0");
  return std::vector<ir::Type>{{qkv.dtype, {qkv.shape[0], values}}};
}

}  // namespace

const ir::OpDecl kGatedDeltaNet{
    .name = "gated_delta_net",
    .summary =
        "S = exp(g) S; S += k (beta (v - S^T k))^T; S^T q, S in a slot: qkv [T, 2*Hk*Dk+Hv*Dv], ba [T, 2*Hv], "
        "[Hv], [Hv], [P, Hv, Dk, Dv], [P, D*Hv*Dv+(2*D+1)*(Hk*Dk+2*Hv)]? -> [T, Hv*Dv]",
    .operands = {{.name = "qkv"},
                 {.name = "ba"},
                 {.name = "a_log"},
                 {.name = "dt_bias"},
                 {.name = "state", .mutated = true},
                 {.name = "draft_rows", .mutated = true, .optional = true}},
    .attributes = {{.name = "group", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "key_heads", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "drafts", .kind = ir::AttributeKind::kInt}},
    .infer = infer_gated_delta_net,
    .split_by_default = true,
};

}  // namespace tessera
