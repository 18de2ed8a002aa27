#include "tessera/ops/sampling/top_logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/sampling/greatest.h"

namespace tessera {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& logits = s.operands[0];
  TRY(expect_rank(s, 0, "logits", 2));
  TRY(expect_type(s, 0, "logits", {ir::DType::kFloat32, logits.shape}));
  TRY(constant_cols(s, 0, "logits"));
  const ir::Dim rows = logits.shape[0];
  TRY(expect_type(s, 1, "targets", {ir::DType::kInt32, {rows}}));
  return std::vector{ir::Type{ir::DType::kFloat32, {rows}}, ir::Type{ir::DType::kInt32, {rows, kMaxTopLogprobs}},
                     ir::Type{ir::DType::kFloat32, {rows, kMaxTopLogprobs}}};
}

// Collects the kMaxTopLogprobs tokens with the greatest logits of a row, by insertion.
class FirstTokens {
 public:
  // Takes the token into account. Precondition: ids ascend from call to call.
  void offer(float logit, std::int32_t id) {
    if (count_ == kMaxTopLogprobs && !(logit > logits_[count_ - 1])) return;
    if (count_ < kMaxTopLogprobs) ++count_;
    int at = count_ - 1;
    for (; at > 0 && logit > logits_[at - 1]; --at) {
      logits_[at] = logits_[at - 1];
      ids_[at] = ids_[at - 1];
    }
    logits_[at] = logit;
    ids_[at] = id;
  }
  bool full() const { return count_ == kMaxTopLogprobs; }
  float last() const { return logits_[count_ - 1]; }
  int count() const { return count_; }
  float logit(int i) const { return logits_[i]; }
  std::int32_t id(int i) const { return ids_[i]; }

 private:
  float logits_[kMaxTopLogprobs];
  std::int32_t ids_[kMaxTopLogprobs];
  int count_ = 0;
};

// Collects the tokens with the row's greatest logits. Most blocks contain none of these tokens, and then cost only one
// comparison for each logit.
TESSERA_CPU_CLONES void find_first(const float* x, std::int64_t n, FirstTokens& first) {
  constexpr std::int64_t kBlock = 256;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t size = std::min(kBlock, n - i);
    if (first.full() && !(greatest(x + i, size) > first.last())) continue;
    for (std::int64_t j = i; j < i + size; ++j)
      if (!std::isnan(x[j])) first.offer(x[j], static_cast<std::int32_t>(j));
  }
}

// Returns log Σ e^(x - greatest) without the terms that are NaN. The sums of blocks are added in double, so that 150k
// terms lose no precision.
TESSERA_CPU_CLONES float log_sum(const float* x, std::int64_t n, float greatest) {
  constexpr std::int64_t kBlock = 2048;
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t size = std::min(kBlock, n - i);
    float block = 0;
#pragma omp simd reduction(+ : block)
    for (std::int64_t j = 0; j < size; ++j) {
      const float here = x[i + j];
      block += here == here ? fast_exp(here - greatest) : 0.0f;
    }
    sum += static_cast<double>(block);
  }
  return static_cast<float>(std::log(sum));
}

struct TopLogprobs {
  const float* logits;          // [rows, vocab]
  const std::int32_t* targets;  // [rows]
  float* logprobs;              // [rows]
  std::int32_t* top_ids;        // [rows, kMaxTopLogprobs]
  float* top_logprobs;          // [rows, kMaxTopLogprobs]
  std::int64_t rows;
  std::int64_t vocab;

  void row(std::int64_t r) const {
    const float* const x = logits + r * vocab;
    FirstTokens first;
    find_first(x, vocab, first);
    const float greatest = first.count() > 0 ? first.logit(0) : kLowest;
    const bool distribution = std::isfinite(greatest);
    const float normaliser = distribution ? log_sum(x, vocab, greatest) : 0.0f;
    // Subtracts `greatest` and log(sum) one after the other. If they were added first, rounding could lose the smaller
    // one.
    const auto logprob = [&](float logit) {
      return distribution && !std::isnan(logit) ? (logit - greatest) - normaliser : kLowest;
    };
    logprobs[r] = targets[r] >= 0 && targets[r] < vocab ? logprob(x[targets[r]]) : kLowest;
    for (int i = 0; i < kMaxTopLogprobs; ++i) {
      top_ids[r * kMaxTopLogprobs + i] = i < first.count() ? first.id(i) : -1;
      top_logprobs[r * kMaxTopLogprobs + i] = i < first.count() ? logprob(first.logit(i)) : kLowest;
    }
  }
};

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const TopLogprobs op{.logits = args.operands[0].as<float>(),
                       .targets = args.operands[1].as<std::int32_t>(),
                       .logprobs = args.results[0].as<float>(),
                       .top_ids = args.results[1].as<std::int32_t>(),
                       .top_logprobs = args.results[2].as<float>(),
                       .rows = args.operands[0].rows(),
                       .vocab = args.operands[0].cols()};
  return make_cpu_op("top_logprobs", [op] {
    parallel_rows(op.rows, op.vocab * static_cast<std::int64_t>(sizeof(float)),
                  [&op](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t r = begin; r < end; ++r) op.row(r);
                  });
  });
}

}  // namespace

const ir::OpDecl kTopLogprobs{
    .name = "top_logprobs",
    .summary =
        "log-probability of a target and of the 20 first tokens of each row: f32[R, V], i32[R] -> "
        "f32[R], i32[R, 20], f32[R, 20]",
    .operands = {{"logits"}, {"targets"}},
    .attributes = {},
    .infer = infer,
};

const KernelDef kTopLogprobsCpu{.op = "top_logprobs", .name = "cpu", .bind = bind};

}  // namespace tessera
