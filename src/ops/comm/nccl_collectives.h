// What GPUs of several processes exchange (nccl_exchange.h), bound for one size.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/ops/comm/nccl_exchange.h"
#include "tessera/ops/contract/op.h"

namespace tessera::cuda {

// A GPU among those that share a communicator. `device` is a CudaDevice and outlives what is made with it.
NcclExchange::Place nccl_place(Device& device);
// NcclExchange::of() for the device's rank. Precondition: ranks of the group are in other processes.
Result<std::shared_ptr<NcclExchange>> nccl_of(Communicator& communicator, Device& device);

// x to the next stage, or from the previous one, by a link's side: `sends` says which of them that is.
std::unique_ptr<BoundOp> bind_nccl_link(std::shared_ptr<const NcclExchange> link, bool sends, const TensorView& x);

// x = Σ over ranks, in place.
std::unique_ptr<BoundOp> bind_nccl_reduce(std::shared_ptr<const NcclExchange> exchange, const TensorView& x);

// x [R, N] → y [R, ranks · N]. `scratch` has nccl_gather_scratch() bytes: NCCL puts the ranks' rows one behind another.
std::unique_ptr<BoundOp> bind_nccl_gather(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                          const TensorView& y, DeviceAddress scratch);
std::size_t nccl_gather_scratch(const TensorView& y);

// As Communicator::all_gather_rows and reduce_scatter.
std::unique_ptr<BoundOp> bind_nccl_gather_rows(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                               const TensorView& y);
std::unique_ptr<BoundOp> bind_nccl_scatter(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                           const TensorView& y);

}  // namespace tessera::cuda
