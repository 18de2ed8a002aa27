// Attention on the CPU. A work item is one KV head of one request and a tile of its query rows, a row being
// one query head of one token; threads take items as they come. Per block of 64 keys of the cache: scores,
// softmax so far (running greatest score and sum, as in "Online normalizer calculation for softmax",
// arXiv:1805.02867), weighted sum of values. All in float32.
//
// Tiles of many rows convert the block's keys and values once and multiply matrices; tiles of a few rows
// (decode) read them straight from the cache.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/cpu_gemm.h"
#include "tessera/ops/cpu_op.h"
#include "tessera/ops/cpu_vector.h"

namespace tessera {
namespace {

constexpr std::int64_t kTileRows = 96;   // 16 register tiles of 6
constexpr std::int64_t kBlockKeys = 64;  // blocks start at multiples of it, so a row's bits do not depend on its tile
constexpr std::int64_t kFewRows = 8;
constexpr std::int64_t kPrefetchKeys = 8;  // ahead: rows of one head lie far apart, which hardware does not foresee
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

struct Problem {
  const std::byte* q;        // X[num_rows, heads, head_dim]
  const std::byte* k_cache;  // Y[num_slots, kv_heads, head_dim]
  const std::byte* v_cache;
  std::byte* out;         // X[num_rows, heads, head_dim]
  std::int64_t num_rows;  // of the bucket, T
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t page_size;
  std::int64_t window;
  float scale;
  float softcap;
  AttentionMetadata metadata;
  std::byte* workspace;
  std::int64_t workers;

  std::int64_t group() const { return heads / kv_heads; }
  std::int64_t padded_dim() const { return round_up(head_dim, kVecFloats); }
};

// One worker's memory.
struct Scratch {
  explicit Scratch(float* base, std::int64_t padded_dim)
      : q(base),
        keys(q + kTileRows * padded_dim),
        values(keys + kBlockKeys * padded_dim),
        sums(values + kBlockKeys * padded_dim),
        scores(sums + kTileRows * padded_dim),
        greatest(scores + kTileRows * kBlockKeys),
        total(greatest + kTileRows),
        offsets(reinterpret_cast<std::int64_t*>(total + kTileRows)) {}
  static std::int64_t bytes(std::int64_t padded_dim) {
    const std::int64_t floats = 2 * (kTileRows + kBlockKeys) * padded_dim + kTileRows * kBlockKeys + 2 * kTileRows +
                                2 * (kBlockKeys + kPrefetchKeys);
    return round_up(floats * static_cast<std::int64_t>(sizeof(float)), kDeviceAlignment);
  }

  float* q;               // [rows, padded_dim], times scale
  float* keys;            // [padded_dim, kBlockKeys]
  float* values;          // [kBlockKeys, padded_dim]
  float* sums;            // [rows, padded_dim]: Σ exp(s_j - greatest) · v_j so far
  float* scores;          // [rows, kBlockKeys]
  float* greatest;        // [rows]
  float* total;           // [rows]: Σ exp(s_j - greatest) so far
  std::int64_t* offsets;  // [kBlockKeys + kPrefetchKeys]: elements from the cache's start to the key
};

// The query rows [row_begin, row_end) of one request and KV head; row r is query head r mod G of token r / G.
struct Tile {
  std::int64_t head;
  std::int64_t row_begin;
  std::int64_t row_end;
  std::int64_t query_start;  // first token of the request
  std::int64_t offset;       // position of that token: kv_len - query_len
  const std::int32_t* pages;

  std::int64_t rows() const { return row_end - row_begin; }
};

struct Range {
  std::int64_t begin;
  std::int64_t end;
};

TESSERA_INLINE Range visible(const Problem& p, std::int64_t position) {
  const std::int64_t begin = p.window > 0 ? std::max<std::int64_t>(0, position - p.window + 1) : 0;
  return {begin, position + 1};
}

template <class X>
TESSERA_INLINE std::int64_t row_element(const Problem& p, const Tile& tile, std::int64_t row) {
  const std::int64_t token = tile.query_start + row / p.group();
  return (token * p.heads + tile.head * p.group() + row % p.group()) * p.head_dim;
}

template <class X>
TESSERA_INLINE void load_queries(const Problem& p, const Tile& tile, const Scratch& s) {
  const std::int64_t padded = p.padded_dim();
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    const X* from = reinterpret_cast<const X*>(p.q) + row_element<X>(p, tile, tile.row_begin + r);
    float* to = s.q + r * padded;
    for (std::int64_t d = 0; d < p.head_dim; ++d) to[d] = to_float(from[d]) * p.scale;
    for (std::int64_t d = p.head_dim; d < padded; ++d) to[d] = 0.0f;
    for (std::int64_t d = 0; d < padded; ++d) s.sums[r * padded + d] = 0.0f;
    s.greatest[r] = kMinusInfinity;
    s.total[r] = 0.0f;
  }
}

template <class X>
TESSERA_INLINE void store_outputs(const Problem& p, const Tile& tile, const Scratch& s) {
  for (std::int64_t r = 0; r < tile.rows(); ++r) {
    X* to = reinterpret_cast<X*>(p.out) + row_element<X>(p, tile, tile.row_begin + r);
    const float* from = s.sums + r * p.padded_dim();
    const float factor = 1.0f / s.total[r];
    for (std::int64_t d = 0; d < p.head_dim; ++d) to[d] = from_float<X>(from[d] * factor);
  }
}

// Turns the block's raw scores into weights, and moves the row's running sums to the new greatest score.
TESSERA_INLINE void update_row(const Problem& p, const Scratch& s, std::int64_t row, Range seen, std::int64_t width) {
  float* scores = s.scores + row * kBlockKeys;
  if (p.softcap > 0)
    for (std::int64_t j = 0; j < width; ++j) scores[j] = p.softcap * fast_tanh(scores[j] / p.softcap);
  for (std::int64_t j = 0; j < seen.begin; ++j) scores[j] = kMinusInfinity;
  for (std::int64_t j = seen.end; j < width; ++j) scores[j] = kMinusInfinity;
  float greatest = s.greatest[row];
#pragma omp simd reduction(max : greatest)
  for (std::int64_t j = 0; j < width; ++j) greatest = scores[j] > greatest ? scores[j] : greatest;
  // No key seen yet: nothing to weigh, and -inf - -inf would be NaN.
  const float reference = greatest == kMinusInfinity ? 0.0f : greatest;
  if (greatest != s.greatest[row]) {
    const float shrink = fast_exp(s.greatest[row] - reference);
    float* sums = s.sums + row * p.padded_dim();
    for (std::int64_t d = 0; d < p.padded_dim(); ++d) sums[d] *= shrink;
    s.total[row] *= shrink;
    s.greatest[row] = greatest;
  }
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (std::int64_t j = 0; j < width; ++j) {
    scores[j] = fast_exp(scores[j] - reference);
    total += scores[j];
  }
  s.total[row] += total;
}

// The block's keys as float32, transposed; zeros for those not present, up to `width`.
template <class Y>
TESSERA_INLINE void load_keys(const Problem& p, const Scratch& s, Range present, std::int64_t width) {
  const std::int64_t whole = p.head_dim / kVecFloats * kVecFloats;
  for (std::int64_t first = 0; first < width; first += kVecFloats) {
    for (std::int64_t d = 0; d < whole; d += kVecFloats) {
      Vec16 rows[16];
      for (int j = 0; j < 16; ++j)
        rows[j] = first + j >= present.begin && first + j < present.end
                      ? load16(reinterpret_cast<const Y*>(p.k_cache) + s.offsets[first + j] + d)
                      : Vec16{};
      transpose16(rows);
      for (int j = 0; j < 16; ++j) store16(s.keys + (d + j) * kBlockKeys + first, rows[j]);
    }
    for (std::int64_t j = first; j < first + kVecFloats; ++j) {
      const bool there = j >= present.begin && j < present.end;
      const Y* key = reinterpret_cast<const Y*>(p.k_cache) + (there ? s.offsets[j] : 0);
      for (std::int64_t d = whole; d < p.head_dim; ++d) s.keys[d * kBlockKeys + j] = there ? to_float(key[d]) : 0.0f;
    }
  }
}

template <class Y>
TESSERA_INLINE void load_values(const Problem& p, const Scratch& s, Range present, std::int64_t width) {
  const std::int64_t padded = p.padded_dim();
  for (std::int64_t j = 0; j < width; ++j) {
    float* to = s.values + j * padded;
    std::int64_t d = 0;
    if (j >= present.begin && j < present.end) {
      const Y* from = reinterpret_cast<const Y*>(p.v_cache) + s.offsets[j];
      for (; d < p.head_dim; ++d) to[d] = to_float(from[d]);
    }
    for (; d < padded; ++d) to[d] = 0.0f;
  }
}

template <class Y>
TESSERA_INLINE void prefetch(const Y* row, std::int64_t count) {
  constexpr auto kLine = static_cast<std::int64_t>(64 / sizeof(Y));
  for (std::int64_t d = 0; d < count; d += kLine) __builtin_prefetch(row + d);
}

// scores[r][j] = q[r] · key j for kRows rows at once, straight from the cache.
template <int kRows, class Y>
TESSERA_INLINE void dot_keys(const Problem& p, const Scratch& s, std::int64_t row, Range present) {
  const std::int64_t padded = p.padded_dim();
  const std::int64_t whole = p.head_dim / kVecFloats * kVecFloats;
  const float* q = s.q + row * padded;
  for (std::int64_t j = present.begin; j < present.end; ++j) {
    const Y* key = reinterpret_cast<const Y*>(p.k_cache) + s.offsets[j];
    if (row == 0) {
      prefetch(reinterpret_cast<const Y*>(p.k_cache) + s.offsets[j + kPrefetchKeys], p.head_dim);
      prefetch(reinterpret_cast<const Y*>(p.v_cache) + s.offsets[j], p.head_dim);
    }
    Vec16 sum[kRows] = {};
    for (std::int64_t d = 0; d < whole; d += kVecFloats) {
      const Vec16 k = load16(key + d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r] += load16(q + r * padded + d) * k;
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float dot = sum16(sum[r]);
      for (std::int64_t d = whole; d < p.head_dim; ++d) dot += q[r * padded + d] * to_float(key[d]);
      s.scores[(row + r) * kBlockKeys + j] = dot;
    }
  }
}

// sums[r][d …] += Σ_j weight[r][j] · value j for kRows rows and 16·kVecs columns, straight from the cache.
template <int kRows, int kVecs, class Y>
TESSERA_INLINE void add_value_columns(const Problem& p, const Scratch& s, std::int64_t row, std::int64_t d,
                                      Range present) {
  const std::int64_t padded = p.padded_dim();
  float* sums = s.sums + row * padded + d;
  const float* weights = s.scores + row * kBlockKeys;
  Vec16 sum[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) sum[r][i] = load16(sums + r * padded + i * kVecFloats);
  for (std::int64_t j = present.begin; j < present.end; ++j) {
    const Y* value = reinterpret_cast<const Y*>(p.v_cache) + s.offsets[j] + d;
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) {
      const Vec16 v = load16(value + i * kVecFloats);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) sum[r][i] += splat16(weights[r * kBlockKeys + j]) * v;
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int i = 0; i < kVecs; ++i) store16(sums + r * padded + i * kVecFloats, sum[r][i]);
}

template <int kRows, class Y>
TESSERA_INLINE void add_values(const Problem& p, const Scratch& s, std::int64_t row, Range present) {
  const std::int64_t padded = p.padded_dim();
  std::int64_t d = 0;
  for (; d + 4 * kVecFloats <= p.head_dim; d += 4 * kVecFloats) add_value_columns<kRows, 4, Y>(p, s, row, d, present);
  for (; d + kVecFloats <= p.head_dim; d += kVecFloats) add_value_columns<kRows, 1, Y>(p, s, row, d, present);
  for (std::int64_t j = present.begin; j < present.end && d < p.head_dim; ++j) {
    const Y* value = reinterpret_cast<const Y*>(p.v_cache) + s.offsets[j];
    for (std::int64_t r = row; r < row + kRows; ++r)
      for (std::int64_t e = d; e < p.head_dim; ++e)
        s.sums[r * padded + e] += s.scores[r * kBlockKeys + j] * to_float(value[e]);
  }
}

template <class X, class Y>
TESSERA_CPU_CLONES void attend(const Problem& p, const Tile& tile, const Scratch& s) {
  load_queries<X>(p, tile, s);
  const std::int64_t rows = tile.rows();
  const std::int64_t padded = p.padded_dim();
  const std::int64_t first_position = tile.offset + tile.row_begin / p.group();
  const std::int64_t last_position = tile.offset + (tile.row_end - 1) / p.group();
  const Range keys{visible(p, first_position).begin, last_position + 1};
  const bool few = rows <= kFewRows;

  for (std::int64_t block = keys.begin / kBlockKeys * kBlockKeys; block < keys.end; block += kBlockKeys) {
    const Range present{std::max(keys.begin, block) - block, std::min(keys.end, block + kBlockKeys) - block};
    const std::int64_t width = round_up(present.end, kVecFloats);
    // Those to prefetch come from the next block; past the last key, the last key again.
    for (std::int64_t j = present.begin; j < present.end + kPrefetchKeys; ++j) {
      const std::int64_t position = std::min(block + j, keys.end - 1);
      const std::int64_t slot = tile.pages[position / p.page_size] * p.page_size + position % p.page_size;
      s.offsets[j] = (slot * p.kv_heads + tile.head) * p.head_dim;
    }

    std::int64_t r = 0;
    if (few) {
      for (; r + 4 <= rows; r += 4) dot_keys<4, Y>(p, s, r, present);
      if (r + 2 <= rows) dot_keys<2, Y>(p, s, r, present), r += 2;
      if (r < rows) dot_keys<1, Y>(p, s, r, present);
    } else {
      load_keys<Y>(p, s, present, width);
      gemm_block({s.q, padded, s.keys, kBlockKeys, s.scores, kBlockKeys, rows, width, p.head_dim, false});
    }

    for (r = 0; r < rows; ++r) {
      const Range seen = visible(p, tile.offset + (tile.row_begin + r) / p.group());
      update_row(p, s, r,
                 {std::clamp<std::int64_t>(seen.begin - block, 0, width),
                  std::clamp<std::int64_t>(seen.end - block, 0, present.end)},
                 width);
    }

    r = 0;
    if (few) {
      for (; r + 4 <= rows; r += 4) add_values<4, Y>(p, s, r, present);
      if (r + 2 <= rows) add_values<2, Y>(p, s, r, present), r += 2;
      if (r < rows) add_values<1, Y>(p, s, r, present);
    } else {
      load_values<Y>(p, s, present, width);
      gemm_block({s.scores, kBlockKeys, s.values, padded, s.sums, padded, rows, padded, width, true});
    }
  }
  store_outputs<X>(p, tile, s);
}

// Requests in the metadata. One that passes the bucket's rows would be a defect of the runner: it and those after it
// are left out rather than written out of bounds.
std::int64_t count_requests(const Problem& p) {
  std::int64_t num_requests = *p.metadata.num_requests;
  while (num_requests > 0 && p.metadata.query_starts[num_requests] > p.num_rows) --num_requests;
  return num_requests;
}

// Where each request's work items start; the last entry is their number.
std::int64_t* count_items(const Problem& p, std::int64_t num_requests) {
  auto* starts = reinterpret_cast<std::int64_t*>(p.workspace);
  std::int64_t count = 0;
  for (std::int64_t b = 0; b < num_requests; ++b) {
    starts[b] = count;
    const std::int64_t rows = (p.metadata.query_starts[b + 1] - p.metadata.query_starts[b]) * p.group();
    count += (rows + kTileRows - 1) / kTileRows * p.kv_heads;
  }
  starts[num_requests] = count;
  return starts;
}

Tile make_tile(const Problem& p, std::int64_t request, std::int64_t item) {
  const std::int64_t query_start = p.metadata.query_starts[request];
  const std::int64_t query_len = p.metadata.query_starts[request + 1] - query_start;
  const std::int64_t rows = query_len * p.group();
  // The last rows see the most keys: they go first, so that no thread is left alone with them.
  const std::int64_t tile = (rows + kTileRows - 1) / kTileRows - 1 - item / p.kv_heads;
  return {.head = item % p.kv_heads,
          .row_begin = tile * kTileRows,
          .row_end = std::min(rows, (tile + 1) * kTileRows),
          .query_start = query_start,
          .offset = p.metadata.kv_lens[request] - query_len,
          .pages = p.metadata.page_table + request * p.metadata.max_pages_per_request};
}

std::int64_t index_bytes(const AttentionMetadata& metadata) {
  return round_up((metadata.max_requests + 1) * static_cast<std::int64_t>(sizeof(std::int64_t)), kDeviceAlignment);
}

template <class X, class Y>
void run(const Problem& p) {
  const std::int64_t num_requests = count_requests(p);
  const std::int64_t* starts = count_items(p, num_requests);
  std::byte* scratch = p.workspace + index_bytes(p.metadata);
  std::atomic<std::int64_t> next{0};
  parallel_for(std::min(p.workers, starts[num_requests]), 1, [&](std::int64_t begin, std::int64_t) {
    const Scratch own(reinterpret_cast<float*>(scratch + begin * Scratch::bytes(p.padded_dim())), p.padded_dim());
    for (std::int64_t item = next++; item < starts[num_requests]; item = next++) {
      const std::int64_t request = std::upper_bound(starts, starts + num_requests, item) - starts - 1;
      attend<X, Y>(p, make_tile(p, request, item - starts[request]), own);
    }
  });
}

Result<const AttentionMetadata*> find_metadata(const BindArgs& args) {
  const std::int64_t group = args.node.attribute_or("group", std::int64_t{0});
  if (static_cast<std::size_t>(group) >= args.context.attention.size())
    return failed_precondition(fmt::format("attention reads cache group {}, but the forward context has {}", group,
                                           args.context.attention.size()));
  return &args.context.attention[static_cast<std::size_t>(group)];
}

std::int64_t workers(const Device& device) { return std::max(1, device.properties().threads); }

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const AttentionMetadata* metadata = TRY(find_metadata(args));
  const std::int64_t padded_dim = round_up(args.operands[1].dim(3), kVecFloats);
  return static_cast<std::size_t>(index_bytes(*metadata) + workers(args.device) * Scratch::bytes(padded_dim));
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const TensorView& q = args.operands[0];
  const TensorView& cache = args.operands[1];
  const AttentionMetadata* metadata = TRY(find_metadata(args));
  const Problem p{.q = q.data,
                  .k_cache = cache.data,
                  .v_cache = args.operands[2].data,
                  .out = args.operands[3].data,
                  .num_rows = q.dim(0),
                  .heads = q.dim(1) / cache.dim(3),
                  .kv_heads = cache.dim(2),
                  .head_dim = cache.dim(3),
                  .page_size = cache.dim(1),
                  .window = args.node.attribute_or("window", std::int64_t{0}),
                  .scale = static_cast<float>(args.node.attribute_or("scale", 1.0)),
                  .softcap = static_cast<float>(args.node.attribute_or("softcap", 0.0)),
                  .metadata = *metadata,
                  .workspace = args.workspace,
                  .workers = workers(args.device)};
  using Bound = Result<std::unique_ptr<BoundOp>>;
  return dispatch_dtype(q.dtype, "attention", [&]<class X>() -> Bound {
    return dispatch_dtype(cache.dtype, "attention's cache",
                          [&]<class Y>() -> Bound { return make_cpu_op("attention", [p] { run<X, Y>(p); }); });
  });
}

}  // namespace

const KernelDef kAttentionCpu{.op = "attention", .name = "cpu", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
