#include "tessera/ops/collective/nccl_collectives.h"

#include <algorithm>
#include <utility>

#include "tessera/ops/cuda/cuda_launch.cuh"
#include "tessera/ops/cuda/cuda_op.h"

namespace tessera::cuda {
namespace {

// The maximum number of bytes that one ncclAllGather gathers from all ranks together. Larger tensors take several
// calls. The limit keeps the scratch memory small in comparison to the activations. It costs no speed, because a call
// of this size is limited by bandwidth, not by latency.
constexpr std::int64_t kGatherBytes = std::int64_t{16} << 20;

// Returns how many of `rows` rows one call gathers. `row_bytes` is the size of one row of all ranks together.
std::int64_t rows_at_once(std::int64_t rows, std::int64_t row_bytes) {
  return std::min(rows, std::max<std::int64_t>(1, kGatherBytes / std::max<std::int64_t>(row_bytes, 1)));
}

// Copies `from` [ranks, rows, columns] to `to` [rows, ranks · columns].
template <class T>
__global__ void put_side_by_side(const T* from, T* to, std::int64_t ranks, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = flat_item(); i < ranks * rows * columns;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t row = i / (ranks * columns);
    const std::int64_t rank = i / columns % ranks;
    to[i] = from[(rank * rows + row) * columns + i % columns];
  }
}

class NcclReduceOp final : public BoundOp {
 public:
  NcclReduceOp(std::shared_ptr<const NcclExchange> exchange, const TensorView& x)
      : exchange_(std::move(exchange)), x_(x) {}
  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("ncclAllReduce"));
    return exchange_->all_reduce(x_, cuda.handle());
  }

 private:
  // Returns a different number for each size, so that each size is warmed up before a capture. NCCL may choose another
  // algorithm for each size. The first call of an algorithm connects the GPUs, and they cannot be connected during a
  // capture.
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(x_.bytes()); }

  std::shared_ptr<const NcclExchange> exchange_;
  TensorView x_;
};

// Gathers the rows of all ranks on each rank (all-gather). If `sums` is true, the operator instead adds the rows over
// the ranks, and each rank gets the sums of its own rows (reduce-scatter).
class NcclRowsOp final : public BoundOp {
 public:
  NcclRowsOp(std::shared_ptr<const NcclExchange> exchange, bool sums, const TensorView& x, const TensorView& y)
      : exchange_(std::move(exchange)), sums_(sums), x_(x), y_(y) {}
  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch(sums_ ? "ncclReduceScatter" : "ncclAllGather"));
    return sums_ ? exchange_->reduce_scatter(x_, y_, cuda.handle())
                 : exchange_->all_gather(x_.data, y_.data, static_cast<std::size_t>(x_.bytes()), cuda.handle());
  }

 private:
  // Returns a different number for each size, for the reason given in NcclReduceOp. The numbers of a gather and of a
  // sum differ too, because both may occur with the same size.
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(x_.bytes()) * 2 + (sums_ ? 1 : 0); }

  std::shared_ptr<const NcclExchange> exchange_;
  bool sums_;
  TensorView x_;
  TensorView y_;
};

class NcclLinkOp final : public BoundOp {
 public:
  NcclLinkOp(std::shared_ptr<const NcclExchange> link, bool sends, const TensorView& x)
      : link_(std::move(link)), sends_(sends), x_(x) {}
  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    TRY(cuda.begin_launch("a link between stages by NCCL"));
    return link_->hand_on(x_, cuda.handle());
  }

 private:
  // Returns a different number for each size, for the reason given in NcclReduceOp. A send and a receive of the same
  // size have different numbers too. A middle stage receives on one link and sends on another, and must warm up both.
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(x_.bytes()) * 2 + (sends_ ? 1 : 0); }

  std::shared_ptr<const NcclExchange> link_;
  bool sends_;
  TensorView x_;
};

class NcclGatherOp final : public BoundOp {
 public:
  NcclGatherOp(std::shared_ptr<const NcclExchange> exchange, const TensorView& x, const TensorView& y,
               DeviceAddress scratch)
      : exchange_(std::move(exchange)),
        x_(x),
        y_(y),
        scratch_(scratch),
        row_bytes_(x.cols() * static_cast<std::int64_t>(ir::dtype_size(x.dtype))) {}

  Status enqueue(Stream& stream) const override {
    CudaStream& cuda = as_cuda(stream);
    const std::int64_t ranks = exchange_->ranks();
    const std::int64_t rows = x_.dim(0);
    const std::int64_t most = rows_at_once(rows, row_bytes_ * ranks);
    for (std::int64_t first = 0; first < rows; first += most) {
      const std::int64_t count = std::min(most, rows - first);
      const DeviceAddress from = x_.data + first * row_bytes_;
      const DeviceAddress to = y_.data + first * row_bytes_ * ranks;
      TRY(cuda.begin_launch("ncclAllGather"));
      TRY(exchange_->all_gather(from, count == 1 ? to : scratch_, static_cast<std::size_t>(count * row_bytes_),
                                cuda.handle()));
      if (count > 1) TRY(order(to, count, cuda));
    }
    return ok_status();
  }

 private:
  std::uint64_t choice() const override { return static_cast<std::uint64_t>(x_.bytes()); }

  // Copies `rows` gathered rows from scratch to `to`, with the columns of all ranks side by side.
  Status order(DeviceAddress to, std::int64_t rows, CudaStream& stream) const {
    TRY(stream.begin_launch("all_gather"));
    if (row_bytes_ % 16 == 0) {
      launch_order<uint4>(to, rows, stream);
    } else if (row_bytes_ % 4 == 0) {
      launch_order<std::uint32_t>(to, rows, stream);
    } else {
      launch_order<std::uint8_t>(to, rows, stream);
    }
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
      return stream.launch_error("all_gather", error);
    return ok_status();
  }
  template <class T>
  void launch_order(DeviceAddress to, std::int64_t rows, CudaStream& stream) const {
    const std::int64_t columns = row_bytes_ / static_cast<std::int64_t>(sizeof(T));
    const std::int64_t ranks = exchange_->ranks();
    launch(put_side_by_side<T>, flat_shape(ranks * rows * columns), stream.handle(),
           reinterpret_cast<const T*>(scratch_.raw()), reinterpret_cast<T*>(to.raw()), ranks, rows, columns);
  }

  std::shared_ptr<const NcclExchange> exchange_;
  TensorView x_;
  TensorView y_;
  DeviceAddress scratch_;
  std::int64_t row_bytes_;
};

}  // namespace

std::unique_ptr<BoundOp> bind_nccl_reduce(std::shared_ptr<const NcclExchange> exchange, const TensorView& x) {
  return std::make_unique<NcclReduceOp>(std::move(exchange), x);
}

std::unique_ptr<BoundOp> bind_nccl_link(std::shared_ptr<const NcclExchange> link, bool sends, const TensorView& x) {
  return std::make_unique<NcclLinkOp>(std::move(link), sends, x);
}

std::unique_ptr<BoundOp> bind_nccl_gather(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                          const TensorView& y, DeviceAddress scratch) {
  return std::make_unique<NcclGatherOp>(std::move(exchange), x, y, scratch);
}

std::unique_ptr<BoundOp> bind_nccl_gather_rows(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                               const TensorView& y) {
  return std::make_unique<NcclRowsOp>(std::move(exchange), /*sums=*/false, x, y);
}

std::unique_ptr<BoundOp> bind_nccl_scatter(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                           const TensorView& y) {
  return std::make_unique<NcclRowsOp>(std::move(exchange), /*sums=*/true, x, y);
}

std::size_t nccl_gather_scratch(const TensorView& y) {
  const std::int64_t rows = y.dim(0);
  if (rows == 0) return 0;
  const std::int64_t row_bytes = y.bytes() / rows;
  const std::int64_t most = rows_at_once(rows, row_bytes);
  return most == 1 ? 0 : static_cast<std::size_t>(most * row_bytes);
}

}  // namespace tessera::cuda
