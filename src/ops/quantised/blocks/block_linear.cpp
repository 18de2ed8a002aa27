#include "tessera/ops/quantised/blocks/block_linear.h"

#include <algorithm>
#include <atomic>

#include "tessera/device/alignment.h"
#include "tessera/device/cpu/parallel.h"
#include "tessera/ops/cpu/cpu_math.h"
#include "tessera/ops/cpu/cpu_op.h"
#include "tessera/ops/quantised/blocks/block_multiply.h"
#include "tessera/ops/quantised/blocks/packed_layout.h"
#include "tessera/ops/quantised/quantised_store.h"

namespace tessera {
namespace {

using blocks::kMostMultiplied;

// The maximum number of rows that are multiplied at once. Their sums stay in a thread's L2 cache.
constexpr std::int64_t kMostRows = 512;
// The rows of the matrix are divided into kShares shares for each thread. Small shares balance threads of unequal
// speed, but large shares are read faster.
constexpr std::int64_t kShares = 8;

// The layout of the workspace, in bytes.
struct Layout {
  std::size_t workers = 0;  // offset of the threads' parts, which follow the inputs
  std::size_t worker = 0;   // size of a part, which begins with the scratch of multiply()
  std::size_t sums = 0;     // offset within a part: f32[rows, kMostMultiplied]
  std::size_t size = 0;
};

Layout lay_out(const QuantisedProblem& p) {
  Layout l;
  l.workers = align_up(blocks::input_bytes(p.m, p.k));
  l.sums = align_up(blocks::multiply_scratch_bytes(p.w.blocks()));
  l.worker = l.sums + align_up(static_cast<std::size_t>(std::min(p.m, kMostRows) * kMostMultiplied) * sizeof(float));
  l.size = l.workers + static_cast<std::size_t>(p.workers) * l.worker;
  return l;
}

template <class T>
class BlockLinear final : public BoundOp {
 public:
  explicit BlockLinear(const QuantisedProblem& p) : p_(p), at_(lay_out(p)) {}

  Status enqueue(Stream& stream) const override {
    const BlockLinear* self = this;
    return as_cpu(stream).launch("quantised_linear", [self] {
      self->run();
      return ok_status();
    });
  }

 private:
  void run() const {
    auto* inputs = reinterpret_cast<blocks::Input*>(p_.workspace);
    parallel_for(p_.m, 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        blocks::make_inputs(p_.x + static_cast<std::size_t>(row * p_.k) * sizeof(T), p_.dtype, p_.k, p_.m, row, inputs);
    });
    const blocks::Inputs x{.at = inputs, .rows = p_.m, .parts = p_.k / kPackedColumns};
    const std::int64_t steps = (p_.n + kMostMultiplied - 1) / kMostMultiplied;
    const std::int64_t share = std::max<std::int64_t>(1, steps / (p_.workers * kShares));
    std::atomic<std::int64_t> next{0};
    parallel_for(std::min(p_.workers, steps), 1, [&](std::int64_t worker, std::int64_t) {
      std::byte* own = p_.workspace + at_.workers + static_cast<std::size_t>(worker) * at_.worker;
      for (std::int64_t i = next.fetch_add(share); i < steps; i = next.fetch_add(share))
        for (std::int64_t step = i; step < std::min(steps, i + share); ++step) multiply(x, step, own);
    });
  }

  void multiply(const blocks::Inputs& x, std::int64_t step, std::byte* own) const {
    auto* sums = reinterpret_cast<float*>(own + at_.sums);
    const std::int64_t first = step * kMostMultiplied;
    const std::int64_t count = std::min(kMostMultiplied, p_.n - first);
    for (std::int64_t row = 0; row < p_.m; row += kMostRows) {
      const std::int64_t rows = std::min(kMostRows, p_.m - row);
      blocks::multiply(p_.w.blocks(), first, count, x, row, rows, sums, own);
      store_sums<T>(p_, sums, kMostMultiplied, {first, count}, row, rows);
    }
  }

  QuantisedProblem p_;
  Layout at_;
};

}  // namespace

bool block_linear_takes(const QuantisedProblem& p) {
  return p.inputs == QuantisedProblem::Inputs::kBlock && p.w.format.is_blocks() &&
         packed_layout(p.w.format.blocks) != nullptr;
}

std::size_t block_linear_workspace(const QuantisedProblem& p) { return lay_out(p).size; }

Result<std::unique_ptr<BoundOp>> bind_block_linear(const QuantisedProblem& p) {
  return dispatch_dtype(p.dtype, "quantised_linear", [&]<class T>() -> Result<std::unique_ptr<BoundOp>> {
    return std::make_unique<BlockLinear<T>>(p);
  });
}

}  // namespace tessera
