#include "tessera/ops/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "tessera/ops/cpu_math.h"
#include "tessera/ops/cpu_op.h"
#include "tessera/ops/philox.h"
#include "tessera/ops/row_loop.h"
#include "tessera/ops/shape_rule.h"

namespace tessera {
namespace {

constexpr int kWeightBits = 42;
constexpr std::int64_t kMaxVocab = std::int64_t{1} << 21;  // the sum of all weights stays below 2^64

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
  TRY(expect_type(s, 4, "seed", {ir::DType::kInt64, rows}));
  TRY(expect_type(s, 5, "choice", {ir::DType::kInt32, rows}));
  TRY(expect_type(s, 6, "position", {ir::DType::kInt32, rows}));
  return std::vector{ir::Type{ir::DType::kInt32, rows}};
}

// The greatest of x[0, n) other than NaN; -inf where there is none.
TESSERA_INLINE float greatest(const float* x, std::int64_t n) {
  constexpr std::int64_t kLanes = 64;
  float best = -std::numeric_limits<float>::infinity();
  float lanes[kLanes];
  for (float& lane : lanes) lane = best;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
#pragma omp simd
    for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  for (const float lane : lanes) best = lane > best ? lane : best;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

// One pass over memory: the first block that has the greatest value is searched while it is in the cache.
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

// A token that may be drawn. Keys ascend in the order of the draw: descending logit, then id.
struct Candidate {
  std::uint64_t key;
  std::uint64_t weight;
  std::int32_t id() const { return static_cast<std::int32_t>(key & 0xffffffffu); }
};

TESSERA_INLINE std::uint64_t order_key(float logit, std::int64_t id) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(logit + 0.0f);  // -0 becomes 0
  const std::uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return std::uint64_t{~ascending} << 32 | static_cast<std::uint64_t>(id);
}

// ⌊2^42 · e^z⌉ for z <= 0; 0 for NaN and far below. The sum with 2^52 rounds to the unit and leaves
// the weight in its low bits, which vectorises where a conversion to 64-bit integers does not.
TESSERA_INLINE std::uint64_t weight_of(float z) {
  constexpr double kUnits = static_cast<double>(std::uint64_t{1} << kWeightBits);
  constexpr double kMagic = static_cast<double>(std::uint64_t{1} << 52);
  const double shifted = static_cast<double>(fast_exp(z)) * kUnits + kMagic;
  const std::uint64_t weight = std::bit_cast<std::uint64_t>(shifted) & ((std::uint64_t{1} << 52) - 1);
  return z > -40.0f ? weight : 0;
}

struct Row {
  const float* logits;
  std::int64_t vocab;
  float greatest;
  float temperature;
};

// The candidates within some distance of the greatest logit, and the weight of all tokens.
struct Gathered {
  Candidate* candidates;
  std::int64_t count = 0;
  std::uint64_t weight = 0;  // of the candidates
  std::uint64_t total = 0;   // of all tokens
  bool complete = false;     // no token that weighs anything is missing
};

TESSERA_CPU_CLONES Gathered gather(const Row& row, float distance, Candidate* candidates) {
  constexpr std::int64_t kBlock = 32;
  Gathered out{candidates};
  std::int64_t positive = 0;
  for (std::int64_t i = 0; i < row.vocab; i += kBlock) {
    const std::int64_t n = std::min(kBlock, row.vocab - i);
    float z[kBlock];
    std::uint64_t weights[kBlock];
    std::uint64_t sum = 0;
    std::int32_t near = 0;
#pragma omp simd reduction(+ : sum, near, positive)
    for (std::int64_t j = 0; j < n; ++j) {
      z[j] = (row.logits[i + j] - row.greatest) / row.temperature;
      weights[j] = weight_of(z[j]);
      sum += weights[j];
      near += z[j] >= -distance ? 1 : 0;
      positive += weights[j] > 0 ? 1 : 0;
    }
    out.total += sum;
    if (near == 0) continue;
    for (std::int64_t j = 0; j < n; ++j) {
      if (!(z[j] >= -distance) || weights[j] == 0) continue;
      out.candidates[out.count++] = {order_key(row.logits[i + j], i + j), weights[j]};
      out.weight += weights[j];
    }
  }
  out.complete = out.count == positive;
  return out;
}

// The first tokens of the order, gathered in front of the candidates; their own order is not defined,
// but that the last one is last.
struct Prefix {
  std::int64_t count = 0;
  std::uint64_t weight = 0;
};

enum class Measure { kCount, kWeight };

template <Measure kMeasure>
std::uint64_t measure(const Candidate& c) {
  return kMeasure == Measure::kCount ? 1 : c.weight;
}

// Moves c[pivot] to its place in the order within [begin, end), those before it to its left; returns the
// place. `left` is the measure of those before it, `left_weight` their weight.
template <Measure kMeasure>
std::int64_t partition(Candidate* c, std::int64_t begin, std::int64_t end, std::int64_t pivot, std::uint64_t& left,
                       std::uint64_t& left_weight) {
  std::swap(c[pivot], c[end - 1]);
  const std::uint64_t key = c[end - 1].key;
  std::int64_t store = begin;
  left = 0;
  left_weight = 0;
  // Without a branch on the comparison, which no predictor guesses.
  for (std::int64_t i = begin; i < end - 1; ++i) {
    const Candidate here = c[i];
    const bool before = here.key < key;
    const std::uint64_t mask = before ? ~std::uint64_t{0} : 0;
    c[i] = c[store];
    c[store] = here;
    store += before ? 1 : 0;
    left += measure<kMeasure>(here) & mask;
    left_weight += here.weight & mask;
  }
  std::swap(c[store], c[end - 1]);
  return store;
}

// The shortest prefix that measures at least `need`, by quickselect: expected time linear in n.
// Precondition: need >= 1, and all candidates together measure at least that.
template <Measure kMeasure>
Prefix select(Candidate* c, std::int64_t n, std::uint64_t need) {
  constexpr std::int64_t kSortAtMost = 24;
  std::int64_t begin = 0;
  std::int64_t end = n;
  std::uint64_t weight = 0;  // of [0, begin)
  std::uint32_t random = 1;
  while (end - begin > kSortAtMost) {
    // The median of three places that no order of ids and logits is prepared for.
    std::int64_t places[3];
    for (std::int64_t& place : places) {
      random = random * 1664525u + 1013904223u;
      place = begin + static_cast<std::int64_t>((std::uint64_t{random} * static_cast<std::uint64_t>(end - begin)) >> 32);
    }
    std::sort(places, places + 3, [c](std::int64_t a, std::int64_t b) { return c[a].key < c[b].key; });
    std::uint64_t left = 0;
    std::uint64_t left_weight = 0;
    const std::int64_t at = partition<kMeasure>(c, begin, end, places[1], left, left_weight);
    if (left >= need) {
      end = at;
      continue;
    }
    weight += left_weight + c[at].weight;
    need -= left;
    if (measure<kMeasure>(c[at]) >= need) return {at + 1, weight};
    need -= measure<kMeasure>(c[at]);
    begin = at + 1;
  }
  std::sort(c + begin, c + end, [](const Candidate& a, const Candidate& b) { return a.key < b.key; });
  for (std::int64_t i = begin; i < end; ++i) {
    weight += c[i].weight;
    if (measure<kMeasure>(c[i]) >= need) return {i + 1, weight};
    need -= measure<kMeasure>(c[i]);
  }
  return {end, weight};
}

struct SamplingParams {
  std::int32_t top_k;
  float top_p;
  std::uint64_t bits;
};

// The token, or -1 where the candidates do not reach as far as needed.
std::int32_t draw(const Gathered& from, const SamplingParams& params) {
  Candidate* c = from.candidates;
  Prefix kept{from.count, from.weight};
  std::uint64_t weight = from.total;  // of the tokens kept so far, candidates or not
  if (params.top_k > 0) {
    if (params.top_k <= from.count)
      kept = select<Measure::kCount>(c, kept.count, static_cast<std::uint64_t>(params.top_k));
    else if (!from.complete)
      return -1;
    weight = kept.weight;
  }
  if (params.top_p < 1.0f) {
    const double share = std::ceil(static_cast<double>(params.top_p) * static_cast<double>(weight));
    const std::uint64_t need = share > 1.0 ? std::min(weight, static_cast<std::uint64_t>(share)) : 1;
    if (need > kept.weight) return -1;
    kept = select<Measure::kWeight>(c, kept.count, need);
    weight = kept.weight;
  }
  __extension__ using Wide = unsigned __int128;
  const std::uint64_t u = static_cast<std::uint64_t>((Wide{params.bits} * weight) >> 64);
  if (u >= kept.weight) return -1;
  return c[select<Measure::kWeight>(c, kept.count, u + 1).count - 1].id();
}

std::int32_t sample_row(const Row& row, const SamplingParams& params, Candidate* scratch) {
  // In nats at the row's temperature: a language model has most of its weight near the greatest logit,
  // and gathering everything is several times dearer.
  constexpr float kNear = 8.0f;
  const std::int32_t near = draw(gather(row, kNear, scratch), params);
  if (near >= 0) return near;
  return draw(gather(row, std::numeric_limits<float>::infinity(), scratch), params);
}

struct SampleKernel {
  const float* logits;
  const float* temperature;
  const std::int32_t* top_k;
  const float* top_p;
  const std::int64_t* seed;
  const std::int32_t* choice;
  const std::int32_t* position;
  std::int32_t* out;
  Candidate* scratch;  // [slots, vocab]
  std::int64_t rows;
  std::int64_t vocab;
  std::int64_t slots;

  void operator()() const {
    parallel_for(slots, 1, [this](std::int64_t begin, std::int64_t end) {
      for (std::int64_t slot = begin; slot < end; ++slot)
        for (std::int64_t r = slot; r < rows; r += slots) out[r] = sample(r, scratch + slot * vocab);
    });
  }

  std::int32_t sample(std::int64_t r, Candidate* row_scratch) const {
    const float* row = logits + r * vocab;
    const std::int32_t best = argmax_row(row, vocab);
    if (!(temperature[r] > 0.0f) || !std::isfinite(row[best])) return best;
    return sample_row({row, vocab, row[best], temperature[r]},
                      {top_k[r], top_p[r], sampling_bits(seed[r], choice[r], position[r])}, row_scratch);
  }
};

// Rows are dealt out to as many slots as there are threads; a slot has scratch for one row.
std::int64_t slots_of(const BindArgs& args) {
  return std::clamp<std::int64_t>(args.operands[0].rows(), 1, std::max(1, args.device.properties().threads));
}

Result<std::size_t> sample_workspace(const BindArgs& args) {
  return static_cast<std::size_t>(slots_of(args) * args.operands[0].cols()) * sizeof(Candidate);
}

Result<std::unique_ptr<BoundOp>> bind_sample(const BindArgs& args) {
  const TensorView& logits = args.operands[0];
  return make_cpu_op("sample", SampleKernel{.logits = logits.as<float>(),
                                            .temperature = args.operands[1].as<float>(),
                                            .top_k = args.operands[2].as<std::int32_t>(),
                                            .top_p = args.operands[3].as<float>(),
                                            .seed = args.operands[4].as<std::int64_t>(),
                                            .choice = args.operands[5].as<std::int32_t>(),
                                            .position = args.operands[6].as<std::int32_t>(),
                                            .out = args.results[0].as<std::int32_t>(),
                                            .scratch = reinterpret_cast<Candidate*>(args.workspace),
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
    .summary = "one token of each row's distribution after temperature, top_k and top_p: f32[R, V], ... -> i32[R]",
    .operands = {{"logits"}, {"temperature"}, {"top_k"}, {"top_p"}, {"seed"}, {"choice"}, {"position"}},
    .attributes = {},
    .infer = infer_sample,
};

const KernelDef kArgmaxCpu{.op = "argmax", .name = "cpu", .bind = bind_argmax};

const KernelDef kSampleCpu{
    .op = "sample", .name = "cpu", .bind = bind_sample, .workspace_bytes = sample_workspace};

}  // namespace tessera
