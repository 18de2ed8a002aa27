// Computes quantised_linear on the CPU. Threads take blocks of columns of y. A column of y belongs to a row of w. There
// are four ways to multiply a block by x. Each line below gives a way's name, says when it is used, and says what it
// does:
//
//   blocks      packed blocks of GGUF, and x that is rounded by block: integer products (blocks/block_linear.h)
//   registers   a few rows of x, or any number in a deterministic forward: w is converted where it is multiplied
//               (quantised_dot.h), so w is read once for a few rows
//   oneDNN      many rows: the block is converted to x's type in the cache, and the library multiplies. Sums depend on
//               the number of rows, so a deterministic forward does not use it. A model whose inputs may be rounded by
//               block does not use it either: another operator would round a number near the middle of two steps
//               differently, and logits would depend on the number of rows by about a percent.
//   floats      everything else: the block is converted to float32 in the cache, and linear's dot kernel multiplies
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/linear/linear_cpu.h"
#include "tessera/ops/linear/onednn_blocks.h"
#include "tessera/ops/quantised/blocks/block_linear.h"
#include "tessera/ops/quantised/quantised_dot.h"
#include "tessera/ops/quantised/quantised_linear.h"
#include "tessera/ops/quantised/quantised_problem.h"
#include "tessera/ops/quantised/quantised_rows.h"
#include "tessera/ops/quantised/quantised_store.h"

namespace tessera {
namespace {

constexpr std::int64_t kBlockColumns = 64;
// The minimum number of rows for oneDNN. With so many rows it is faster than "registers" and "floats", although it
// needs a converted block.
constexpr std::int64_t kLeastOneDnnRows = 48;

enum class Way : std::uint8_t { kBlocks, kRegisters, kOneDnn, kFloats };

struct Problem : QuantisedProblem {
  Way way = Way::kFloats;
};

Way choose(const Problem& p, bool deterministic) {
  if (block_linear_takes(p)) return Way::kBlocks;
  const bool any_sum = !deterministic && p.inputs != QuantisedProblem::Inputs::kBlock;
  if (any_sum && p.m >= kLeastOneDnnRows && onednn_takes(p.dtype)) return Way::kOneDnn;
  return quantised_dot_takes(p.w, p.dtype) ? Way::kRegisters : Way::kFloats;
}

Problem make_problem(const BindArgs& args) {
  Problem p{make_quantised_problem(args)};
  p.way = choose(p, args.context.limits.deterministic);
  return p;
}

OneDnnBlocks::Shape onednn_shape(const Problem& p) {
  return {.columns = kBlockColumns, .depth = p.k, .dtype = p.dtype, .float_sums = true};
}
// Returns the number of rows that oneDNN computes at once. The rows of x are divided into parts of about equal size.
// oneDNN may compute additional rows in the last part, but in no other part.
std::int64_t onednn_rows(const Problem& p) {
  const std::int64_t pieces = (p.m + OneDnnBlocks::kMostRows - 1) / OneDnnBlocks::kMostRows;
  return OneDnnBlocks::computed_rows((p.m + pieces - 1) / pieces);
}
// Returns the size in bytes of a copy of x that has as many rows as oneDNN reads. Returns 0 if x itself has that many
// rows.
std::size_t padded_x_bytes(const Problem& p) {
  const std::int64_t most = onednn_rows(p);
  const std::int64_t before_last = (p.m - 1) / most * most;
  const std::int64_t read = before_last + OneDnnBlocks::computed_rows(p.m - before_last);
  return read == p.m ? 0 : static_cast<std::size_t>(read * p.k) * ir::dtype_size(p.dtype);
}

// The layout of the workspace, in bytes. Each thread has a part of the workspace.
struct Layout {
  std::size_t workers = 0;  // offset of the threads' parts, which follow the converted x
  std::size_t worker = 0;   // size of a part, which begins with the block's converted weights
  std::size_t sums = 0;     // offset within a part: f32[rows, kBlockColumns]
  std::size_t own = 0;      // offset within a part: the codes of a row, then oneDNN's scratch
  std::size_t size = 0;
};

std::size_t floats(std::int64_t count) { return align_up(static_cast<std::size_t>(count) * sizeof(float)); }

Layout lay_out(const Problem& p, std::size_t onednn_bytes) {
  Layout l;
  std::int64_t sum_rows = p.m;
  switch (p.way) {
    case Way::kBlocks: break;  // block_linear.h has a layout of its own
    case Way::kRegisters: l.workers = align_up(quantised_dot_x_bytes(p.m, p.k, p.dtype)); break;
    case Way::kOneDnn:
      l.workers = align_up(padded_x_bytes(p));
      sum_rows = onednn_rows(p);
      break;
    case Way::kFloats: l.workers = p.dtype == ir::DType::kFloat32 ? 0 : floats(p.m * p.k); break;
  }
  l.sums = p.way == Way::kRegisters ? 0 : floats(kBlockColumns * p.k);
  l.own = l.sums + floats(sum_rows * kBlockColumns);
  const auto codes = static_cast<std::size_t>(p.k);
  l.worker = l.own + align_up(codes) + (p.way == Way::kOneDnn ? align_up(onednn_bytes) : 0);
  l.size = l.workers + static_cast<std::size_t>(p.workers) * l.worker;
  return l;
}

template <class T>
TESSERA_CPU_CLONES void to_floats(const T* from, float* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = to_float(from[i]);
}

template <class T>
class QuantisedLinearOp final : public BoundOp {
 public:
  QuantisedLinearOp(const Problem& p, const Layout& at, std::unique_ptr<OneDnnBlocks> onednn)
      : p_(p), at_(at), onednn_(std::move(onednn)) {}

  Status enqueue(Stream& stream) const override {
    const QuantisedLinearOp* self = this;
    return as_cpu(stream).launch("quantised_linear", [self] { return self->run(); });
  }

 private:
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(p_.way); }

  Status run() const {
    const std::byte* x = read_x();
    const std::int64_t blocks = (p_.n + kBlockColumns - 1) / kBlockColumns;
    std::atomic<std::int64_t> next{0};
    std::atomic<bool> failed{false};
    Status error;
    parallel_for(std::min(p_.workers, blocks), 1, [&](std::int64_t worker, std::int64_t) {
      std::byte* own = p_.workspace + at_.workers + static_cast<std::size_t>(worker) * at_.worker;
      for (std::int64_t i = next++; i < blocks; i = next++) {
        const std::int64_t first = i * kBlockColumns;
        Status done = multiply(x, {first, std::min(kBlockColumns, p_.n - first)}, own);
        if (!done.ok() && !failed.exchange(true)) error = std::move(done);
      }
    });
    return error;
  }

  // Returns x in the form that multiply() takes.
  const std::byte* read_x() const {
    if (at_.workers == 0) return p_.x;
    const std::int64_t cols = p_.k;
    parallel_for(p_.m, 16, [&](std::int64_t begin, std::int64_t end) {
      const std::size_t first = static_cast<std::size_t>(begin * cols) * sizeof(T);
      const std::byte* from = p_.x + first;
      if (p_.way == Way::kOneDnn) {
        std::memcpy(p_.workspace + first, from, static_cast<std::size_t>((end - begin) * cols) * sizeof(T));
        return;
      }
      std::byte* to = p_.workspace + static_cast<std::size_t>(begin * cols) * sizeof(float);
      if (p_.way == Way::kRegisters) return quantised_dot_prepare(from, end - begin, cols, p_.dtype, to);
      to_floats(reinterpret_cast<const T*>(from), reinterpret_cast<float*>(to), (end - begin) * cols);
    });
    return p_.workspace;
  }

  Status multiply(const std::byte* x, const ColumnBlock& block, std::byte* own) const {
    auto* sums = reinterpret_cast<float*>(own + at_.sums);
    if (p_.way == Way::kOneDnn) return multiply_by_onednn(x, block, own);
    if (p_.way == Way::kRegisters) {
      quantised_dot(p_.w, x, p_.m, p_.dtype, block.first, block.count, sums);
    } else {
      multiply_floats(x, block, own);
    }
    store_sums<T>(p_, sums, block.count, block, 0, p_.m);
    return ok_status();
  }

  Status multiply_by_onednn(const std::byte* x, const ColumnBlock& block, std::byte* own) const {
    T* weights = reinterpret_cast<T*>(own);
    quantised_rows(p_.w, block.first, block.count, weights, codes(own));
    // If the last block has fewer columns, zeroes the missing weights, because oneDNN always computes kBlockColumns
    // columns.
    std::fill(weights + block.count * p_.k, weights + kBlockColumns * p_.k, T{});
    const std::int64_t most = onednn_rows(p_);
    for (std::int64_t row = 0; row < p_.m; row += most) {
      const std::int64_t rows = std::min(most, p_.m - row);
      TRY(onednn_->run(rows, {.x = x + static_cast<std::size_t>(row * p_.k) * sizeof(T),
                              .w = own,
                              .bias = nullptr,
                              .y = own + at_.sums,
                              .scratch = own + at_.own + align_up(static_cast<std::size_t>(p_.k))}));
      store_sums<T>(p_, reinterpret_cast<const float*>(own + at_.sums), kBlockColumns, block, row, rows);
    }
    return ok_status();
  }

  void multiply_floats(const std::byte* x, const ColumnBlock& block, std::byte* own) const {
    quantised_rows(p_.w, block.first, block.count, reinterpret_cast<float*>(own), codes(own));
    LinearProblem floats{};
    floats.w = own;
    floats.y = own + at_.sums;
    floats.m = p_.m;
    floats.n = block.count;
    floats.k = p_.k;
    floats.dtype = ir::DType::kFloat32;
    dot_columns<float>(floats, reinterpret_cast<const float*>(x), 0, block.count, nullptr);
  }

  std::uint8_t* codes(std::byte* own) const { return reinterpret_cast<std::uint8_t*>(own + at_.own); }

  Problem p_;
  Layout at_;
  std::unique_ptr<OneDnnBlocks> onednn_;
};

Result<std::size_t> onednn_bytes(const Problem& p) {
  if (p.way != Way::kOneDnn) return std::size_t{0};
  return OneDnnBlocks::scratch_bytes(onednn_shape(p), onednn_rows(p));
}

Result<std::size_t> workspace_bytes(const BindArgs& args) {
  const Problem p = make_problem(args);
  if (p.m == 0) return std::size_t{0};
  if (p.way == Way::kBlocks) return block_linear_workspace(p);
  return lay_out(p, TRY(onednn_bytes(p))).size;
}

Result<std::unique_ptr<BoundOp>> bind(const BindArgs& args) {
  const Problem p = make_problem(args);
  if (p.m == 0) return make_cpu_op("quantised_linear", [] {});
  if (p.way == Way::kBlocks) return bind_block_linear(p);
  const Layout at = lay_out(p, TRY(onednn_bytes(p)));
  std::unique_ptr<OneDnnBlocks> onednn;
  if (p.way == Way::kOneDnn) onednn = TRY(OneDnnBlocks::create(onednn_shape(p), onednn_rows(p)));
  return dispatch_dtype(p.dtype, "quantised_linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return std::make_unique<QuantisedLinearOp<T>>(p, at, std::move(onednn));
  });
}

}  // namespace

const KernelDef kQuantisedLinearCpu{
    .op = "quantised_linear", .name = "cpu", .bind = bind, .workspace_bytes = workspace_bytes};

}  // namespace tessera
