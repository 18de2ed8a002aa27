// Computes moe_experts on the CPU. Rows of x are sorted by expert. A thread computes a block of an expert's results:
// some of the expert's rows of x by 48 columns of the result. Each of these columns belongs to one row of weights. The
// thread uses dot products of rows (linear_dot.cpp) or oneDNN (onednn_blocks.h).
//
// A decode step reads the chosen experts' weights, 3 · H · I values for each expert (H: hidden size, I: intermediate
// size), and little else. Reading these weights from memory takes nearly all of the step's time. A block reads each of
// its weights once for up to 240 rows of x. Blocks of 48 columns are small enough to share the work of one token among
// dozens of threads: with I = 768 and 8 experts there are 768 / 48 · 8 = 128 blocks.
//
// A prefill has so many rows for every expert that products limit the speed. In this case oneDNN is faster than dot
// products. For example, on one core of a Zen 5 EPYC, in bfloat16 with H = 2048 and I = 768, oneDNN makes the whole
// operator 1.19 times as fast with 128 rows of each expert, and 1.24 times as fast with 256 rows. With 32 rows it gains
// nothing. oneDNN's sums depend on the number of rows, so a deterministic forward always uses dot products.
//
// Quantised weights are also read from memory once. A block unpacks its rows of weights (48, or 64 with oneDNN) into
// the L2 cache, and multiplies them there. Packed blocks of GGUF are multiplied as they are (moe_blocks_cpu.h).
#include <algorithm>
#include <atomic>

#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_activation.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/cpu/row_loop.h"
#include "tessera/ops/moe/cpu_mxfp4.h"
#include "tessera/ops/moe/moe_experts_layout.h"
#include "tessera/ops/quantised/quantised_rows.h"

namespace tessera {
namespace {

using namespace experts_cpu;  // NOLINT(google-build-using-namespace): only this kernel uses it

constexpr std::int64_t kProductsToWake = 32768;  // this number of products takes about as long as waking a thread

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

// Converts a value to the dot kernel's input, rounded to T.
template <class T>
TESSERA_INLINE DotInput<T> as_input(float value) {
  if constexpr (std::is_same_v<T, Float16>)
    return to_float(from_float<T>(value));
  else
    return from_float<T>(value);
}

// The values of gate and up in a block. Both arrays are [rows, columns].
template <class T>
struct GateUp {
  const T* gate;
  const T* up;
  std::int64_t rows;
  std::int64_t columns;
};

// Applies `activation` to the values of gate and up in a block. The rows of y are `stride` apart.
template <class T, class F>
TESSERA_CPU_CLONES void activate(const GateUp<T>& in, DotInput<T>* y, std::int64_t stride, F activation) {
  for (std::int64_t r = 0; r < in.rows; ++r) {
    const T* gate = in.gate + r * in.columns;
    const T* up = in.up + r * in.columns;
#pragma omp simd
    for (std::int64_t c = 0; c < in.columns; ++c)
      y[r * stride + c] = as_input<T>(activation(to_float(gate[c]), to_float(up[c])));
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

// oneDNN's products: `up` computes gate and up, and `down` computes down. Both are null if oneDNN is not used.
struct Products {
  std::unique_ptr<OneDnnBlocks> up;
  std::unique_ptr<OneDnnBlocks> down;
};

// Runs the operator for tokens [begin, begin + count), count <= kMostTokens.
template <class T>
struct Slice {
  const ExpertsProblem& p;
  const Layout& at;
  const Products& products;
  std::byte* scratch;
  std::int64_t workers;
  std::int64_t begin;
  std::int64_t count;
  std::int64_t num_blocks = 0;
  std::int64_t num_pairs = 0;  // the pairs (token, k) whose id names an expert
  bool packed = multiplies_blocks(p);

  template <class U>
  U* part(std::size_t offset) const {
    return reinterpret_cast<U*>(scratch + offset);
  }
  std::byte* worker(std::int64_t i) const { return scratch + at.workers + static_cast<std::size_t>(i) * at.worker; }

  std::int64_t expert_of(std::int64_t pair) const {
    const std::int32_t id = p.ids[begin * p.top_k + pair];
    return id >= 0 && id < p.experts ? id : -1;
  }

  // Sorts the pairs (token, k) by expert. The pairs of an expert stay in the order of tokens.
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

  // Calls body(block, first column, end column, worker's memory, is new) for all blocks and ranges of columns, in
  // parallel. "is new" is true if the worker's previous call had another block, or if this is the worker's first call.
  // Returns the first error.
  template <class Body>
  Status for_blocks(std::int64_t columns, std::int64_t depth, const Body& body) const {
    const std::int64_t width = products.up != nullptr ? kOneDnnColumns : kBlockColumns;
    const std::int64_t across = (columns + width - 1) / width;
    const std::int64_t items = num_blocks * across;
    const std::int64_t wakeable = 1 + num_pairs * columns * depth / kProductsToWake;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    Status error;
    parallel_for(std::min({workers, items, wakeable}), 1, [&](std::int64_t range, std::int64_t) {
      std::int64_t last = -1;
      for (std::int64_t item = next++; item < items; item = next++) {
        const std::int64_t block = item / across;
        const std::int64_t column = item % across * width;
        Status done = body(part<RowBlock>(at.blocks)[block], column, std::min(columns, column + width), worker(range),
                           block != last);
        if (!done.ok() && !failed.exchange(true)) error = std::move(done);
        last = block;
      }
    });
    return error;
  }

  const std::byte* element(const std::byte* base, std::int64_t index) const {
    return base == nullptr ? nullptr : base + static_cast<std::size_t>(index) * sizeof(T);
  }
  const T* bias_at(const std::byte* base, std::int64_t index) const {
    return reinterpret_cast<const T*>(element(base, index));
  }
  blocks::Input* inputs(std::byte* own) const { return reinterpret_cast<blocks::Input*>(own + at.worker_packed); }

  // Returns rows [first, first + rows) of gate_up or down (`stack`) as T, with k weights each. If `stack` is quantised,
  // `matrix` describes it. Converted weights are written to `own`, the worker's memory.
  const std::byte* weights(const std::byte* stack, const QuantisedMatrix& matrix, const std::uint8_t* scales,
                           std::int64_t first, std::int64_t rows, std::int64_t k, std::byte* own) const {
    if (!p.mxfp4 && !p.quantised) return element(stack, first * k);
    T* w = reinterpret_cast<T*>(own + at.worker_w);
    if (p.quantised) {
      quantised_rows(matrix, first, rows, w, reinterpret_cast<std::uint8_t*>(own + at.worker_codes));
      return reinterpret_cast<const std::byte*>(w);
    }
    unpack_mxfp4(reinterpret_cast<const std::uint8_t*>(stack) + first * k / 2, scales + first * k / kMxfp4Block, w,
                 rows * k / kMxfp4Block);
    return reinterpret_cast<const std::byte*>(w);
  }

  // Computes y[rows, n] = x[rows, k] · wᵀ + bias by oneDNN or the dot kernel. oneDNN may compute more rows than x has,
  // so y has room for OneDnnBlocks::computed_rows(rows) rows.
  Status multiply(const LinearProblem& matmul, const OneDnnBlocks* onednn, const DotInput<T>* x, std::byte* own) const {
    if (uses_onednn(onednn, matmul.m, matmul.n))
      return onednn->run(matmul.m, {.x = reinterpret_cast<const std::byte*>(x),
                                    .w = matmul.w,
                                    .bias = matmul.bias,
                                    .y = matmul.y,
                                    .scratch = own + at.worker_own});
    dot_columns<T>(matmul, x, 0, matmul.n, reinterpret_cast<float*>(own + at.worker_own));
    return ok_status();
  }
  static bool uses_onednn(const OneDnnBlocks* onednn, std::int64_t rows, std::int64_t columns) {
    return onednn != nullptr && rows >= kLeastOneDnnRows && columns == kOneDnnColumns;
  }

  Status gate_up(const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own, bool new_block) const {
    auto* x = reinterpret_cast<DotInput<T>*>(own + at.worker_x);
    auto* both = reinterpret_cast<T*>(own + at.worker_gate);
    const std::int32_t* row = part<std::int32_t>(at.row) + block.first;
    for (std::int64_t r = 0; new_block && r < block.rows; ++r) {
      const std::byte* of_row = element(p.x, (begin + row[r]) * p.hidden);
      if (packed)
        blocks::make_inputs(of_row, p.dtype, p.hidden, block.rows, r, inputs(own));
      else
        copy_row(reinterpret_cast<const T*>(of_row), x + r * p.hidden, p.hidden);
    }
    const std::int64_t columns = end - column;
    T* const halves[2] = {both, both + kBlockRows * columns};
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t first = (block.expert * 2 + half) * p.intermediate + column;
      if (packed) {
        multiply_blocks(p.gate_up_matrix.blocks(), first, columns, block.rows, bias_at(p.gate_up_bias, first),
                        halves[half], own + at.worker_packed, at.packed);
        continue;
      }
      LinearProblem matmul{};
      matmul.w = weights(p.gate_up, p.gate_up_matrix, p.gate_up_scale, first, columns, p.hidden, own);
      matmul.bias = element(p.gate_up_bias, first);
      matmul.y = reinterpret_cast<std::byte*>(halves[half]);
      matmul.m = block.rows;
      matmul.n = columns;
      matmul.k = p.hidden;
      matmul.dtype = p.dtype;
      TRY(multiply(matmul, products.up.get(), x, own));
    }
    auto* y = part<DotInput<T>>(at.activated) + block.first * p.intermediate + column;
    const GateUp<T> in{halves[0], halves[1], block.rows, columns};
    switch (p.activation) {
      case GatedActivation::kSwiglu: activate<T>(in, y, p.intermediate, Gated<T, Silu>{}); break;
      case GatedActivation::kGeglu: activate<T>(in, y, p.intermediate, Gated<T, GeluTanh>{}); break;
      case GatedActivation::kClampedSwiglu: activate<T>(in, y, p.intermediate, ClampedSwiglu{p.limit}); break;
    }
    return ok_status();
  }

  Status down(const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own, bool new_block) const {
    const std::int64_t first = block.expert * p.hidden + column;
    const std::int64_t columns = end - column;
    auto* y = reinterpret_cast<T*>(own + at.worker_gate);
    if (packed) {
      down_blocks(block, first, columns, y, own, new_block);
      store_outputs(block, column, columns, y);
      return ok_status();
    }
    LinearProblem matmul{};
    matmul.w = weights(p.down, p.down_matrix, p.down_scale, first, columns, p.intermediate, own);
    matmul.bias = element(p.down_bias, first);
    matmul.y = reinterpret_cast<std::byte*>(y);
    matmul.m = block.rows;
    matmul.n = columns;
    matmul.k = p.intermediate;
    matmul.dtype = p.dtype;
    TRY(multiply(matmul, products.down.get(), part<DotInput<T>>(at.activated) + block.first * p.intermediate, own));
    store_outputs(block, column, columns, y);
    return ok_status();
  }

  void down_blocks(const RowBlock& block, std::int64_t first, std::int64_t columns, T* y, std::byte* own,
                   bool new_block) const {
    const ir::DType dtype = std::is_same_v<T, Float16> ? ir::DType::kFloat32 : p.dtype;  // the type of DotInput<T>
    const auto* x = part<DotInput<T>>(at.activated) + block.first * p.intermediate;
    for (std::int64_t r = 0; new_block && r < block.rows; ++r)
      blocks::make_inputs(reinterpret_cast<const std::byte*>(x + r * p.intermediate), dtype, p.intermediate, block.rows,
                          r, inputs(own));
    multiply_blocks(p.down_matrix.blocks(), first, columns, block.rows, bias_at(p.down_bias, first), y,
                    own + at.worker_packed, at.packed);
  }

  void store_outputs(const RowBlock& block, std::int64_t column, std::int64_t columns, const T* y) const {
    T* outputs = part<T>(at.outputs) + block.first * p.hidden + column;
    for (std::int64_t r = 0; r < block.rows; ++r) std::copy_n(y + r * columns, columns, outputs + r * p.hidden);
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

  Status run() {
    sort();
    TRY(for_blocks(p.intermediate, 2 * p.hidden,
                   [this](const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own,
                          bool new_block) { return gate_up(block, column, end, own, new_block); }));
    TRY(for_blocks(p.hidden, p.intermediate,
                   [this](const RowBlock& block, std::int64_t column, std::int64_t end, std::byte* own,
                          bool new_block) { return down(block, column, end, own, new_block); }));
    const std::int64_t row_bytes = (p.top_k + 1) * p.hidden * static_cast<std::int64_t>(sizeof(T));
    parallel_rows(count, row_bytes, [this](std::int64_t first, std::int64_t end) {
      for (std::int64_t token = first; token < end; ++token) add_up(token);
    });
    return ok_status();
  }
};

std::int64_t workers_of(const BindArgs& args) { return std::max(1, args.device.properties().threads); }

// Returns the bytes of oneDNN's scratch for each worker; 0 means that oneDNN is not used.
Result<std::size_t> onednn_bytes(const BindArgs& args, const ExpertsProblem& p) {
  if (!takes_onednn(p, args.context.limits.deterministic)) return std::size_t{0};
  const std::size_t up = TRY(OneDnnBlocks::scratch_bytes(up_shape(p), most_block_rows(p)));
  const std::size_t down = TRY(OneDnnBlocks::scratch_bytes(down_shape(p), most_block_rows(p)));
  return std::max({up, down, std::size_t{1}});
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  return lay_out(p, workers_of(args), TRY(onednn_bytes(args, p))).size;
}

template <class T>
class Experts final : public BoundOp {
 public:
  Experts(const ExpertsProblem& p, const Layout& at, Products products, std::byte* scratch, std::int64_t workers)
      : p_(p), at_(at), products_(std::move(products)), scratch_(scratch), workers_(workers) {}

  Status enqueue(Stream& stream) const override {
    const Experts* self = this;
    return as_cpu(stream).launch("moe_experts", [self] { return self->run(); });
  }

 private:
  std::uint64_t choice() const override { return products_.up != nullptr ? 1 : 0; }

  Status run() const {
    for (std::int64_t begin = 0; begin < p_.tokens; begin += kMostTokens) {
      const std::int64_t count = std::min(kMostTokens, p_.tokens - begin);
      TRY(Slice<T>{p_, at_, products_, scratch_, workers_, begin, count}.run());
    }
    return ok_status();
  }

  ExpertsProblem p_;
  Layout at_;
  Products products_;
  std::byte* scratch_;
  std::int64_t workers_;
};

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const ExpertsProblem p = make_experts_problem(args);
  const std::size_t onednn = TRY(onednn_bytes(args, p));
  const Layout at = lay_out(p, workers_of(args), onednn);
  Products products;
  if (onednn > 0) {
    products.up = TRY(OneDnnBlocks::create(up_shape(p), most_block_rows(p)));
    products.down = TRY(OneDnnBlocks::create(down_shape(p), most_block_rows(p)));
  }
  return dispatch_dtype(args.operands[0].dtype, "moe_experts", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return std::make_unique<Experts<T>>(p, at, std::move(products), args.workspace.raw(), workers_of(args));
  });
}

}  // namespace

const KernelDef kMoeExpertsCpu{.op = "moe_experts", .name = "cpu", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
