// moe_experts on the CPU: rows in the order of their experts, then dot products of rows (linear_dot.cpp) in blocks of
// an expert's rows and of its columns.
//
// A decode reads the chosen experts' weights, 3 · H · I each, and little else: its time is theirs from memory, and
// every weight is read once for up to 240 rows of its expert. A prefill has enough rows of every expert that products
// set the pace, those of the dot kernel. Blocks of 48 columns are small enough to share the work of one token among
// dozens of threads: with I = 768 and 8 experts there are 128 of them.
//
// Weights of 4 bits are read once from memory too: a block's become numbers in the second-level cache, 48 rows of them,
// and are multiplied there.
#include <algorithm>
#include <atomic>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu_activation.h"
#include "tessera/ops/cpu_mxfp4.h"
#include "tessera/ops/cpu_op.h"
#include "tessera/ops/linear_cpu.h"
#include "tessera/ops/moe_experts.h"
#include "tessera/ops/row_loop.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlockRows = 240;         // a multiple of the dot kernel's 6 rows
constexpr std::int64_t kBlockColumns = 48;       // a multiple of its 24 columns
constexpr std::int64_t kMostTokens = 2048;       // at a time: bounds the scratch
constexpr std::int64_t kProductsToWake = 32768;  // what waking a thread costs

// Rows [first, first + rows) in the order of experts.
struct RowBlock {
  std::int64_t expert;
  std::int64_t first;
  std::int64_t rows;
};

// Where the parts of the scratch begin, in bytes.
struct Layout {
  std::size_t size = 0;
  std::size_t ends;       // i32[experts]: past an expert's last row so far
  std::size_t place;      // i32[pairs]: of (token, k) in the order of experts, or -1
  std::size_t row;        // i32[pairs]: the token at that place
  std::size_t blocks;     // RowBlock[⌈…⌉]
  std::size_t activated;  // [pairs, I], as the dot kernel reads rows
  std::size_t outputs;    // X[pairs, H]
  std::size_t workers;    // `worker` bytes each
  std::size_t worker = 0;
  std::size_t worker_x = 0;     // in it: rows of x, as the dot kernel reads them
  std::size_t worker_gate = 0;  // X[2, kBlockRows, kBlockColumns]: gate and up
  std::size_t worker_own = 0;   // the dot kernel's
  std::size_t worker_w = 0;     // X[kBlockColumns, H or I]: weights that were mxfp4
};

std::size_t take(std::size_t& used, std::int64_t count, std::size_t bytes) {
  const std::size_t at = used;
  used += align_up(static_cast<std::size_t>(count) * bytes);
  return at;
}

Layout lay_out(const ExpertsProblem& p, std::int64_t workers) {
  const std::size_t element = ir::dtype_size(p.dtype);
  const std::size_t read = p.dtype == ir::DType::kFloat16 ? sizeof(float) : element;
  const std::int64_t pairs = std::min(p.tokens, kMostTokens) * p.top_k;
  Layout l{};
  l.ends = take(l.size, p.experts, sizeof(std::int32_t));
  l.place = take(l.size, pairs, sizeof(std::int32_t));
  l.row = take(l.size, pairs, sizeof(std::int32_t));
  l.blocks = take(l.size, std::min(p.experts, pairs) + pairs / kBlockRows, sizeof(RowBlock));
  l.activated = take(l.size, pairs * p.intermediate, read);
  l.outputs = take(l.size, pairs * p.hidden, element);
  l.workers = l.size;
  l.worker_x = take(l.worker, std::min(kBlockRows, pairs) * p.hidden, read);
  l.worker_gate = take(l.worker, 2 * kBlockRows * kBlockColumns, element);
  l.worker_own = take(l.worker, dot_own_floats(p.dtype, std::max(p.hidden, p.intermediate)), sizeof(float));
  if (p.mxfp4) l.worker_w = take(l.worker, kBlockColumns * std::max(p.hidden, p.intermediate), element);
  l.size += static_cast<std::size_t>(workers) * l.worker;
  return l;
}

struct ClampedSwiglu {
  float limit;
  TESSERA_INLINE float operator()(float gate, float up) const {
    gate = gate > limit ? limit : gate;
    up = up > limit ? limit : up < -limit ? -limit : up;
    return gate * sigmoid(kSwigluAlpha * gate) * (up + 1.0F);
  }
};
template <class T, class F>
struct Gated {
  TESSERA_INLINE float operator()(float gate, float up) const { return to_float(from_float<T>(F{}(gate))) * up; }
};

// As the dot kernel reads it, rounded to T.
template <class T>
TESSERA_INLINE DotInput<T> as_input(float value) {
  if constexpr (std::is_same_v<T, Float16>)
    return to_float(from_float<T>(value));
  else
    return from_float<T>(value);
}

// both: gate above up, [2, rows, columns]; y: rows of `stride`.
template <class T, class F>
TESSERA_CPU_CLONES void activate(const T* both, DotInput<T>* y, std::int64_t rows, std::int64_t columns,
                                 std::int64_t stride, F activation) {
  const T* up = both + rows * columns;
  for (std::int64_t r = 0; r < rows; ++r) {
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
      y[r * stride + c] = as_input<T>(activation(to_float(both[r * columns + c]), to_float(up[r * columns + c])));
  }
}

template <class T>
TESSERA_CPU_CLONES void copy_row(const T* from, DotInput<T>* to, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = as_input<T>(to_float(from[i]));
}

template <class T>
TESSERA_CPU_CLONES void add_weighted(const T* x, float weight, float* sum, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] += weight * to_float(x[i]);
}

template <class T>
TESSERA_CPU_CLONES void store_row(const float* sum, T* y, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) y[i] = from_float<T>(sum[i]);
}

// The operator for tokens [begin, begin + count), count <= kMostTokens.
template <class T>
struct Slice {
  const ExpertsProblem& p;
  const Layout& at;
  std::byte* scratch;
  std::int64_t workers;
  std::int64_t begin;
  std::int64_t count;
  std::int64_t num_blocks = 0;
  std::int64_t num_pairs = 0;  // that have an expert

  template <class U>
  U* part(std::size_t offset) const {
    return reinterpret_cast<U*>(scratch + offset);
  }
  std::byte* worker(std::int64_t i) const { return scratch + at.workers + static_cast<std::size_t>(i) * at.worker; }

  std::int64_t expert_of(std::int64_t pair) const {
    const std::int32_t id = p.ids[begin * p.top_k + pair];
    return id >= 0 && id < p.experts ? id : -1;
  }

  // Places pairs in the order of experts, those of an expert in the order of tokens.
  void sort() {
    auto* ends = part<std::int32_t>(at.ends);
    auto* place = part<std::int32_t>(at.place);
    auto* row = part<std::int32_t>(at.row);
    auto* blocks = part<RowBlock>(at.blocks);
    std::fill(ends, ends + p.experts, 0);
    const std::int64_t pairs = count * p.top_k;
    for (std::int64_t i = 0; i < pairs; ++i)
      if (const std::int64_t e = expert_of(i); e >= 0) ++ends[e];
    for (std::int64_t e = 0; e < p.experts; ++e) {
      const std::int64_t rows = ends[e];
      for (std::int64_t r = 0; r < rows; r += kBlockRows)
        blocks[num_blocks++] = {e, num_pairs + r, std::min(kBlockRows, rows - r)};
      ends[e] = static_cast<std::int32_t>(num_pairs);
      num_pairs += rows;
    }
    for (std::int64_t i = 0; i < pairs; ++i) {
      const std::int64_t e = expert_of(i);
      place[i] = e < 0 ? -1 : ends[e]++;
      if (e >= 0) row[place[i]] = static_cast<std::int32_t>(i / p.top_k);
    }
  }

  // body(block, column block, worker's memory, whether the worker's last block was another one).
  template <class Body>
  void for_blocks(std::int64_t columns, std::int64_t depth, const Body& body) const {
    const std::int64_t across = (columns + kBlockColumns - 1) / kBlockColumns;
    const std::int64_t items = num_blocks * across;
    const std::int64_t wakeable = 1 + num_pairs * columns * depth / kProductsToWake;
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min({workers, items, wakeable}), 1, [&](std::int64_t range, std::int64_t) {
      std::int64_t last = -1;
      for (std::int64_t item = next++; item < items; item = next++) {
        const std::int64_t block = item / across;
        const std::int64_t column = item % across * kBlockColumns;
        body(part<RowBlock>(at.blocks)[block], column, std::min(columns, column + kBlockColumns), worker(range),
             block != last);
        last = block;
      }
    });
  }

  const std::byte* element(const std::byte* base, std::int64_t index) const {
    return base == nullptr ? nullptr : base + static_cast<std::size_t>(index) * sizeof(T);
  }

  // Rows [first, first + rows) of a stack, k weights each, as T.
  const std::byte* weights(const std::byte* stack, const std::uint8_t* scales, std::int64_t first, std::int64_t rows,
                           std::int64_t k, std::byte* own) const {
    if (!p.mxfp4) return element(stack, first * k);
    T* w = reinterpret_cast<T*>(own + at.worker_w);
    unpack_mxfp4(reinterpret_cast<const std::uint8_t*>(stack) + first * k / 2, scales + first * k / kMxfp4Block, w,
                 rows * k / kMxfp4Block);
    return reinterpret_cast<const std::byte*>(w);
  }

  void gate_up(const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own, bool new_block) const {
    auto* x = reinterpret_cast<DotInput<T>*>(own + at.worker_x);
    auto* both = reinterpret_cast<T*>(own + at.worker_gate);
    const std::int32_t* row = part<std::int32_t>(at.row) + block.first;
    if (new_block)
      for (std::int64_t r = 0; r < block.rows; ++r)
        copy_row(reinterpret_cast<const T*>(p.x) + (begin + row[r]) * p.hidden, x + r * p.hidden, p.hidden);
    const std::int64_t columns = end - column;
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = (block.expert * 2 + half) * p.intermediate + column;
      LinearProblem matmul{};
      matmul.w = weights(p.gate_up, p.gate_up_scale, first, columns, p.hidden, own);
      matmul.bias = element(p.gate_up_bias, first);
      matmul.y = reinterpret_cast<std::byte*>(both + half * block.rows * columns);
      matmul.m = block.rows;
      matmul.n = columns;
      matmul.k = p.hidden;
      matmul.dtype = p.dtype;
      dot_columns<T>(matmul, x, 0, columns, reinterpret_cast<float*>(own + at.worker_own));
    }
    auto* y = part<DotInput<T>>(at.activated) + block.first * p.intermediate + column;
    switch (p.activation) {
      case GatedActivation::kSwiglu: return activate<T>(both, y, block.rows, columns, p.intermediate, Gated<T, Silu>{});
      case GatedActivation::kGeglu:
        return activate<T>(both, y, block.rows, columns, p.intermediate, Gated<T, GeluTanh>{});
      case GatedActivation::kClampedSwiglu:
        return activate<T>(both, y, block.rows, columns, p.intermediate, ClampedSwiglu{p.limit});
    }
  }

  void down(const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own) const {
    const std::int64_t first = block.expert * p.hidden + column;
    const std::int64_t columns = end - column;
    LinearProblem matmul{};
    matmul.w = weights(p.down, p.down_scale, first, columns, p.intermediate, own);
    matmul.bias = element(p.down_bias, first);
    matmul.y = reinterpret_cast<std::byte*>(part<T>(at.outputs) + block.first * p.hidden + column);
    matmul.m = block.rows;
    matmul.n = p.hidden;  // the distance of y's rows
    matmul.k = p.intermediate;
    matmul.dtype = p.dtype;
    dot_columns<T>(matmul, part<DotInput<T>>(at.activated) + block.first * p.intermediate, 0, columns,
                   reinterpret_cast<float*>(own + at.worker_own));
  }

  void add_up(std::int64_t token) const {
    constexpr std::int64_t kColumns = 512;
    float sum[kColumns];
    const std::int32_t* place = part<std::int32_t>(at.place) + token * p.top_k;
    const float* weights = p.weights + (begin + token) * p.top_k;
    T* y = reinterpret_cast<T*>(p.y) + (begin + token) * p.hidden;
    for (std::int64_t c = 0; c < p.hidden; c += kColumns) {
      const std::int64_t columns = std::min(kColumns, p.hidden - c);
      std::fill(sum, sum + columns, 0.0F);
      for (std::int64_t k = 0; k < p.top_k; ++k)
        if (place[k] >= 0) add_weighted(part<T>(at.outputs) + place[k] * p.hidden + c, weights[k], sum, columns);
      store_row(sum, y + c, columns);
    }
  }

  void run() {
    sort();
    for_blocks(p.intermediate, 2 * p.hidden,
               [this](const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own, bool new_block) {
                 gate_up(block, column, end, own, new_block);
               });
    for_blocks(p.hidden, p.intermediate,
               [this](const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own, bool) {
                 down(block, column, end, own);
               });
    const std::int64_t row_bytes = (p.top_k + 1) * p.hidden * static_cast<std::int64_t>(sizeof(T));
    parallel_rows(count, row_bytes, [this](std::int64_t first, std::int64_t end) {
      for (std::int64_t token = first; token < end; ++token) add_up(token);
    });
  }
};

std::int64_t workers_of(const BindArgs& args) { return std::max(1, args.device.properties().threads); }

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  return lay_out(make_experts_problem(args), workers_of(args)).size;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  return dispatch_dtype(args.operands[0].dtype, "moe_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    const ExpertsProblem p = make_experts_problem(args);
    const std::int64_t workers = workers_of(args);
    std::byte* scratch = args.workspace.raw();
    return make_cpu_op("moe_experts", [p, scratch, workers] {
      const Layout at = lay_out(p, workers);
      for (std::int64_t begin = 0; begin < p.tokens; begin += kMostTokens)
        Slice<T>{p, at, scratch, workers, begin, std::min(kMostTokens, p.tokens - begin)}.run();
    });
  });
}

}  // namespace

const KernelDef kMoeExpertsCpu{.op = "moe_experts", .name = "cpu", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
