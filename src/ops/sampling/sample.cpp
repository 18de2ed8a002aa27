#include "tessera/ops/sampling/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/sampling/greatest.h"
#include "tessera/ops/sampling/philox.h"
#include "tessera/ops/sampling/token_order.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer_argmax(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_type(s, 0, "x", {ir::DType::kFloat32, x.shape}));
  TRY(constant_cols(s, 0, "x"));
  return std::vector{ir::Type{ir::DType::kInt32, {x.shape[0]}}};
}

Result<std::vector<ir::Type>> infer_sample(const ir::OpSignature& s) {
  const ir::Type& logits = s.operands[0];
  TRY(expect_rank(s, 0, "logits", 2));
  TRY(expect_type(s, 0, "logits", {ir::DType::kFloat32, logits.shape}));
  if (const std::int64_t vocab = TRY(constant_cols(s, 0, "logits")); vocab > kMaxVocab)
    return refuse(s, fmt::format("rows of logits have {} values; at most {} are possible", vocab, kMaxVocab));
  const ir::Shape rows{logits.shape[0]};
  TRY(expect_type(s, 1, "temperature", {ir::DType::kFloat32, rows}));
  TRY(expect_type(s, 2, "top_k", {ir::DType::kInt32, rows}));
  TRY(expect_type(s, 3, "top_p", {ir::DType::kFloat32, rows}));
  TRY(expect_type(s, 4, "min_p", {ir::DType::kFloat32, rows}));
  TRY(expect_type(s, 5, "seed", {ir::DType::kInt64, rows}));
  TRY(expect_type(s, 6, "choice", {ir::DType::kInt32, rows}));
  TRY(expect_type(s, 7, "position", {ir::DType::kInt32, rows}));
  return std::vector{ir::Type{ir::DType::kInt32, rows}};
}

// Returns the lowest index of the greatest value. One pass over memory finds this value and the first block of values
// that has it. Then only this block is searched.
TESSERA_CPU_CLONES std::int32_t argmax_row(const float* x, std::int64_t n) {
  constexpr std::int64_t kBlock = 4096;
  float best = -std::numeric_limits<float>::infinity();
  std::int64_t best_block = 0;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const float block_best = greatest(x + i, std::min(kBlock, n - i));
    if (block_best > best) {
      best = block_best;
      best_block = i;
    }
  }
  for (std::int64_t i = best_block; i < n; ++i)
    if (x[i] == best) return static_cast<std::int32_t>(i);
  return 0;
}

struct SamplingParams {
  std::int32_t top_k;
  float top_p;
  float min_p;
  std::uint64_t bits;
};

std::int32_t draw(const TokenOrder& order, const SamplingParams& params) {
  std::uint64_t weight = order.weight();  // the weight of the tokens kept so far
  if (params.top_k > 0 && static_cast<std::uint64_t>(params.top_k) < order.count())
    weight = order.first(static_cast<std::uint64_t>(params.top_k)).weight;
  if (params.top_p < 1.0f) {
    const double share = std::ceil(static_cast<double>(params.top_p) * static_cast<double>(weight));
    weight = order.lightest(share > 1.0 ? std::min(weight, static_cast<std::uint64_t>(share)) : 1).weight;
  }
  if (params.min_p > 0.0f) {
    const float nats = std::min(static_cast<float>(std::log(static_cast<double>(params.min_p))), 0.0f);
    if (nats > -kReach) weight = std::min(weight, order.weight_from(nats));
  }
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t u = static_cast<std::uint64_t>((Wide{params.bits} * weight) >> 64);
  return order.lightest(u + 1).last;
}

struct SampleKernel {
  const float* logits;
  const float* temperature;
  const std::int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const std::int64_t* seed;
  const std::int32_t* choice;
  const std::int32_t* position;
  std::int32_t* out;
  std::byte* scratch;  // [slots, scratch_bytes]
  std::int64_t scratch_bytes;
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t slots;

  void operator()() const {
    parallel_for(slots, 1, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot)
        for (std::int64_t r = slot; r < rows; r += slots) out[r] = sample(r, scratch + slot * scratch_bytes);
    });
  }

  std::int32_t sample(std::int64_t r, std::byte* row_scratch) const {
    const float* row = logits + r * vocab;
    const std::int32_t best = argmax_row(row, vocab);
    if (!(temperature[r] > 0.0f) || !std::isfinite(row[best])) return best;
    return draw(TokenOrder({row, vocab, row[best], temperature[r]}, row_scratch),
                {top_k[r], top_p[r], min_p[r], sampling_bits(seed[r], choice[r], position[r])});
  }
};

// Rows are distributed over slots, and a slot has scratch memory for one row. Returns the number of slots, which is the
// number of threads, but at most the number of rows.
std::int64_t slots_of(const BindArgs& args) {
  return std::clamp<std::int64_t>(args.operands[0].rows(), 1, std::max(1, args.device.properties().threads));
}

std::int64_t scratch_bytes_of(const BindArgs& args) {
  const std::size_t bytes = TokenOrder::scratch_bytes(args.operands[0].cols());
  return static_cast<std::int64_t>((bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment);
}

Result<std::size_t> sample_workspace(const BindArgs& args) {
  return static_cast<std::size_t>(slots_of(args) * scratch_bytes_of(args));
}

Result<std::unique_ptr<BoundOp>> bind_sample(const BindArgs& args) {
  const TensorView& logits = args.operands[0];
  return make_cpu_op("sample", SampleKernel{.logits = logits.as<float>(),
                                            .temperature = args.operands[1].as<float>(),
                                            .top_k = args.operands[2].as<std::int32_t>(),
                                            .top_p = args.operands[3].as<float>(),
                                            .min_p = args.operands[4].as<float>(),
                                            .seed = args.operands[5].as<std::int64_t>(),
                                            .choice = args.operands[6].as<std::int32_t>(),
                                            .position = args.operands[7].as<std::int32_t>(),
                                            .out = args.results[0].as<std::int32_t>(),
                                            .scratch = args.workspace.raw(),
                                            .scratch_bytes = scratch_bytes_of(args),
                                            .rows = logits.rows(),
                                            .vocab = logits.cols(),
                                            .slots = slots_of(args)});
}

Result<std::unique_ptr<BoundOp>> bind_argmax(const BindArgs& args) {
  const float* x = args.operands[0].as<float>();
  std::int32_t* out = args.results[0].as<std::int32_t>();
  const std::int64_t rows = args.operands[0].rows();
  const std::int64_t n = args.operands[0].cols();
  return make_cpu_op("argmax", [=] {
    parallel_rows(rows, n * static_cast<std::int64_t>(sizeof(float)), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) out[r] = argmax_row(x + r * n, n);
    });
  });
}

}  // namespace

const ir::OpDecl kArgmax{
    .name = "argmax",
    .summary = "the lowest index of each row's greatest value: f32[R, V] -> i32[R]",
    .operands = {{"x"}},
    .attributes = {},
    .infer = infer_argmax,
};

const ir::OpDecl kSample{
    .name = "sample",
    .summary =
        "one token of each row's distribution after temperature, top_k, top_p and min_p: f32[R, V], ... -> i32[R]",
    .operands = {{"logits"}, {"temperature"}, {"top_k"}, {"top_p"}, {"min_p"}, {"seed"}, {"choice"}, {"position"}},
    .attributes = {},
    .infer = infer_sample,
};

const KernelDef kArgmaxCpu{.op = "argmax", .name = "cpu", .bind = bind_argmax};

const KernelDef kSampleCpu{.op = "sample", .name = "cpu", .bind = bind_sample, .workspace_bytes = sample_workspace};

}  // namespace tessera
