// Collective operators between GPUs of several processes (nccl_exchange.h), bound for one size.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/comm/nccl_exchange.h"
#include "tessera/ops/contract/op.h"

namespace tessera::cuda {

// Returns a GPU's place in its communicator. `device` is a CudaDevice and must outlive everything made with it.
NcclExchange::Place nccl_place(Device& device);
// Returns NcclExchange::of() for the device's rank. Precondition: the group has ranks in other processes.
Result<std::shared_ptr<NcclExchange>> nccl_of(Communicator& communicator, Device& device);

// Sends x to the next stage, or receives it from the previous one, through one side of a link. `sends` says which side
// this is.
std::unique_ptr<BoundOp> bind_nccl_link(std::shared_ptr<const NcclExchange> link, bool sends, const TensorView& x);

// Binds x = Σ over ranks, in place.
std::unique_ptr<BoundOp> bind_nccl_reduce(std::shared_ptr<const NcclExchange> exchange, const TensorView& x);

// Binds x [R, N] → y [R, ranks · N]. `scratch` has nccl_gather_scratch() bytes, because NCCL writes the ranks' rows one
// behind another.
std::unique_ptr<BoundOp> bind_nccl_gather(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                          const TensorView& y, DeviceAddress scratch);
std::size_t nccl_gather_scratch(const TensorView& y);

// Bind the operators that do what Communicator::all_gather_rows and reduce_scatter do.
std::unique_ptr<BoundOp> bind_nccl_gather_rows(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                               const TensorView& y);
std::unique_ptr<BoundOp> bind_nccl_scatter(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                           const TensorView& y);

}  // namespace tessera::cuda
