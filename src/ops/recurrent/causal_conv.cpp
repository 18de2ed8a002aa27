#include "tessera/ops/recurrent/causal_conv.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/ops/contract/shape_rule.h"
#include "tessera/ops/contract/state_plan.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"

namespace tessera {
namespace {

Result<std::vector<ir::Type>> infer(const ir::OpSignature& s) {
  const ir::Type& x = s.operands[0];
  const ir::Type& state = s.operands[2];
  TRY(expect_floating(s, 0, "x"));
  TRY(expect_rank(s, 0, "x", 2));
  TRY(expect_rank(s, 1, "w", 2));
  const std::int64_t width = TRY(constant_cols(s, 0, "x"));
  const std::int64_t taps = TRY(constant_cols(s, 1, "w"));
  if (taps < 2 || taps > kMaxConvTaps)
    return refuse(s, fmt::format("w has {} taps; accepted: 2 to {}", taps, kMaxConvTaps));
  const std::int64_t channels = s.operands[1].shape[0].constant().value_or(0);
  if (channels < 1 || channels > width)
    return refuse(s, fmt::format("w {} has not between 1 and x's {} channels", s.operands[1].to_string(), width));
  TRY(expect_type(s, 1, "w", {x.dtype, {channels, taps}}));
  TRY(expect_rank(s, 2, "state", 3));
  const std::int64_t drafts = s.node.attribute_or("drafts", std::int64_t{0});
  if (drafts < 0) return refuse(s, fmt::format("drafts is {}; accepted: 0 or more", drafts));
  TRY(expect_type(s, 2, "state", {x.dtype, {state.shape[0], taps - 1 + drafts, channels}}));
  if (s.node.attribute_or("group", std::int64_t{0}) < 0) return refuse(s, "group is negative; groups count from 0");
  return std::vector<ir::Type>{{x.dtype, {x.shape[0], channels}}};
}

template <class T>
struct Problem {
  const T* x;  // [rows, width]
  const T* w;  // [channels, taps]
  T* state;    // [slots, slot_rows, channels]
  T* y;        // [rows, channels]
  std::int64_t num_rows;
  std::int64_t width;
  std::int64_t channels;
  std::int64_t taps;
  std::int64_t slot_rows;  // rows in a slot: taps - 1, plus one for each draft that a slot can hold
  StateMetadata metadata;

  T* slot(std::int64_t request) const { return state + metadata.slots[request] * slot_rows * channels; }
  T* checkpoint_slot(std::int64_t request) const {
    return state + metadata.checkpoint_slots[request] * slot_rows * channels;
  }
};

// Computes y = silu(Σ_j w[:, j] · inputs[j]). A null input counts as zeros.
template <class T>
TESSERA_CPU_CLONES void convolve_row(const T* const* inputs, const T* w, T* y, std::int64_t channels,
                                     std::int64_t taps) {
  constexpr std::int64_t kBlock = 64;
  float sums[kBlock];
  for (std::int64_t c = 0; c < channels; c += kBlock) {
    const std::int64_t n = std::min(kBlock, channels - c);
    std::fill_n(sums, kBlock, 0.0f);
    for (std::int64_t j = 0; j < taps; ++j) {
      if (inputs[j] == nullptr) continue;
      const T* x = inputs[j] + c;
      const T* weights = w + c * taps + j;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) sums[i] += to_float(weights[i * taps]) * to_float(x[i]);
    }
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) y[c + i] = from_float<T>(sums[i] * sigmoid(sums[i]));
  }
}

template <class T>
void convolve_rows(const Problem<T>& p, std::int64_t num_requests, std::int64_t begin, std::int64_t end) {
  const std::int32_t* const starts = p.metadata.lengths.query_starts;
  std::int64_t request = std::upper_bound(starts, starts + num_requests, begin) - starts - 1;
  for (std::int64_t t = begin; t < end; ++t) {
    while (t >= starts[request + 1]) ++request;
    const T* inputs[kMaxConvTaps];
    for (std::int64_t j = 0; j < p.taps; ++j) {
      const std::int64_t row = t - (p.taps - 1) + j;
      const std::int64_t before = row - starts[request];  // negative: a row of the slot; -1: its last accepted row
      if (before >= 0)
        inputs[j] = p.x + row * p.width;
      else if (p.metadata.starts_anew(request))
        inputs[j] = nullptr;
      else
        inputs[j] = p.slot(request) + (p.taps - 1 + p.metadata.accepted_drafts(request) + before) * p.channels;
    }
    convolve_row(inputs, p.w, p.y + t * p.channels, p.channels, p.taps);
  }
}

// Writes to `to` the last taps - 1 rows of the sequence after the request's first `new_rows` rows. If new_rows is less
// than taps - 1, the newest rows that the request's slot holds (accepted drafts included) fill the gap at the front. If
// the request starts in this forward, zeros fill the gap. `to` may be the request's slot.
template <class T>
void keep_rows(const Problem<T>& p, std::int64_t request, std::int64_t new_rows, T* to) {
  const std::int64_t end = p.metadata.first_row(request) + new_rows;
  const T* const slot = p.slot(request);
  for (std::int64_t i = 0; i < p.taps - 1; ++i, to += p.channels) {
    const std::int64_t back = p.taps - 1 - i;  // row i of `to` becomes the row `back` rows before `end`
    if (back <= new_rows)
      std::copy_n(p.x + (end - back) * p.width, p.channels, to);
    else if (p.metadata.starts_anew(request))
      std::fill_n(to, p.channels, T{});
    else
      std::copy_n(slot + (i + new_rows + p.metadata.accepted_drafts(request)) * p.channels, p.channels, to);
  }
}

// Makes the slot hold the last taps - 1 rows before the request's new drafts, and then the drafts. Writes the
// checkpoint first, because it may read rows of the slot.
template <class T>
void keep_last_rows(const Problem<T>& p, std::int64_t request) {
  if (const std::int32_t rows = p.metadata.checkpoint_rows[request]; rows > 0)
    keep_rows(p, request, rows, p.checkpoint_slot(request));
  if (!p.metadata.keeps_state(request)) return;
  const std::int64_t new_rows = p.metadata.kept_rows(request);
  const std::int64_t end = p.metadata.first_row(request) + new_rows;
  T* const slot = p.slot(request);
  keep_rows(p, request, new_rows, slot);
  for (std::int64_t i = 0; i < p.metadata.drafts[request]; ++i)
    std::copy_n(p.x + (end + i) * p.width, p.channels, slot + (p.taps - 1 + i) * p.channels);
}

template <class T>
void run(const Problem<T>& p) {
  const std::int64_t num_requests = count_requests(p.metadata, p.num_rows);
  const std::int64_t num_rows = p.metadata.lengths.query_starts[num_requests];
  const std::int64_t row_bytes = (p.taps + 1) * p.channels * static_cast<std::int64_t>(sizeof(T));
  parallel_rows(num_rows, row_bytes,
                [&](std::int64_t begin, std::int64_t end) { convolve_rows(p, num_requests, begin, end); });
  parallel_rows(num_requests, row_bytes, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) keep_last_rows(p, b);
  });
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const StateMetadata metadata = TRY(find_state_plan(args))->metadata();
  return dispatch_dtype(args.operands[0].dtype, "causal_conv", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const Problem<T> p{.x = args.operands[0].as<T>(),
                       .w = args.operands[1].as<T>(),
                       .state = args.operands[2].as<T>(),
                       .y = args.results[0].as<T>(),
                       .num_rows = args.operands[0].dim(0),
                       .width = args.operands[0].dim(1),
                       .channels = args.operands[1].dim(0),
                       .taps = args.operands[1].dim(1),
                       .slot_rows = args.operands[2].dim(1),
                       .metadata = metadata};
    return make_cpu_op("causal_conv", [p] { run(p); });
  });
}

}  // namespace

const ir::OpDecl kCausalConv{
    .name = "causal_conv",
    .summary =
        "y[t] = silu(sum_j w[:, j] * x[t - K + 1 + j]), earlier rows in a slot: [T, W], [C, K], [P, K-1+D, C] -> "
        "[T, C]",
    .operands = {{.name = "x"}, {.name = "w"}, {.name = "state", .mutated = true}},
    .attributes = {{.name = "group", .kind = ir::AttributeKind::kInt, .required = true},
                   {.name = "drafts", .kind = ir::AttributeKind::kInt}},
    .infer = infer,
};

const KernelDef kCausalConvCpu{.op = "causal_conv", .name = "cpu", .bind = bind, .planner = &kStatePlanner};

}  // namespace tessera
