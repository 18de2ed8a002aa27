#include "tessera/ops/sampling/logit_edits.h"

#include <limits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/sampling/logit_edits_args.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& logits = s.operands[0];
  TRY(expect_rank(s, 0, "logits", 2));
  TRY(expect_type(s, 0, "logits", {ir::DType::kFloat32, logits.shape}));
  const std::int64_t vocab = TRY(constant_cols(s, 0, "logits"));
  const ir::Type per_row{ir::DType::kInt32, {logits.shape[0]}};
  TRY(expect_type(s, 1, "first", per_row));
  TRY(expect_type(s, 2, "count", per_row));
  TRY(expect_rank(s, 3, "ids", 1));
  const ir::Shape edits = s.operands[3].shape;
  TRY(expect_type(s, 3, "ids", {ir::DType::kInt32, edits}));
  TRY(expect_type(s, 4, "penalties", {ir::DType::kFloat32, edits}));
  TRY(expect_type(s, 5, "offsets", {ir::DType::kFloat32, edits}));
  TRY(expect_type(s, 6, "mask", per_row));
  TRY(expect_rank(s, 7, "masks", 2));
  TRY(expect_type(s, 7, "masks", {ir::DType::kInt32, {s.operands[7].shape[0], ir::Dim((vocab + 31) / 32)}}));
  return std::vector<ir::Type>{};
}

TESSERA_CPU_CLONES void mask_word(float* logits, std::int64_t n, std::uint32_t allowed) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    logits[i] = (allowed >> i & 1u) != 0 ? logits[i] : -std::numeric_limits<float>::infinity();
}

void edit_row(const LogitEditArgs& a, std::int64_t r) {
  float* const row = a.logits + r * a.vocab;
  const std::int64_t first = std::max<std::int64_t>(a.first[r], 0);
  const std::int64_t end = std::min<std::int64_t>(std::int64_t{a.first[r]} + a.count[r], a.edits);
  for (std::int64_t e = first; e < end; ++e) {
    const std::int32_t id = a.ids[e];
    if (id < 0 || id >= a.vocab) continue;
    const float x = row[id];
    const float penalised = x > 0.0f ? x / a.penalties[e] : x * a.penalties[e];
    row[id] = penalised + a.offsets[e];
  }
  if (a.mask[r] < 0 || a.mask[r] >= a.num_masks) return;
  const std::uint32_t* const mask = a.masks + a.mask[r] * a.words;
  for (std::int64_t w = 0; w < a.words; ++w) {
    if (mask[w] != ~0u) mask_word(row + 32 * w, std::min<std::int64_t>(32, a.vocab - 32 * w), mask[w]);
  }
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return make_cpu_op("logit_edits", [a = LogitEditArgs::of(args)] {
    parallel_rows(a.rows, a.vocab * static_cast<std::int64_t>(sizeof(float)),
                  [&a](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t r = begin; r < end; ++r) edit_row(a, r);
                  });
  });
}

}  // namespace

const ir::OpDecl kLogitEdits{
    .name = "logit_edits",
    .summary = "penalties, then offsets of a row's ids, then -inf for what its mask leaves out; logits [R, V] in place",
    .operands = {{.name = "logits", .mutated = true},
                 {.name = "first"},
                 {.name = "count"},
                 {.name = "ids"},
                 {.name = "penalties"},
                 {.name = "offsets"},
                 {.name = "mask"},
                 {.name = "masks"}},
    .attributes = {},
    .infer = infer,
};

const KernelDef kLogitEditsCpu{.op = "logit_edits", .name = "cpu", .bind = bind};

}  // namespace tessera
