// Binds collective operators between GPUs of several processes (nccl_exchange.h). A bound operator exchanges tensors of
// one size.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/comm/nccl_exchange.h"
#include "tessera/ops/contract/op.h"

namespace tessera::cuda {

// Returns the device's GPU in the form that NcclExchange takes. `device` is a CudaDevice, and must outlive every object
// that is made with the result.
NcclExchange::Place nccl_place(Device& device);
// Returns the result of NcclExchange::of() for the device's rank. Precondition: the group has ranks in other processes.
Result<std::shared_ptr<NcclExchange>> nccl_of(Communicator& communicator, Device& device);

// Binds one side of a link between two pipeline stages. If `sends` is true, this side sends x to the next stage.
// Otherwise it receives x from the previous stage.
std::unique_ptr<BoundOp> bind_nccl_link(std::shared_ptr<const NcclExchange> link, bool sends, const TensorView& x);

// Binds an all-reduce, which replaces x by the sum of x over the ranks.
std::unique_ptr<BoundOp> bind_nccl_reduce(std::shared_ptr<const NcclExchange> exchange, const TensorView& x);

// Binds an all-gather of x [R, N], whose result is y [R, ranks · N]. NCCL writes each rank's rows as one contiguous
// block to `scratch`, which has nccl_gather_scratch() bytes. A kernel then puts the columns of all ranks side by side.
std::unique_ptr<BoundOp> bind_nccl_gather(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                          const TensorView& y, DeviceAddress scratch);
std::size_t nccl_gather_scratch(const TensorView& y);

// These functions bind all_gather_rows and reduce_scatter. The bound operators do the same as Communicator's functions
// of these names.
std::unique_ptr<BoundOp> bind_nccl_gather_rows(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                               const TensorView& y);
std::unique_ptr<BoundOp> bind_nccl_scatter(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                           const TensorView& y);

}  // namespace tessera::cuda
