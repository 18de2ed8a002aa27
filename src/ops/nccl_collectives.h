// The collectives between GPUs of several processes (nccl_exchange.h), bound for one size.
#pragma once

#include <cstddef>
#include <memory>

#include "tessera/ops/nccl_exchange.h"
#include "tessera/ops/op.h"

namespace tessera::cuda {

// x = Σ over ranks, in place.
std::unique_ptr<BoundOp> bind_nccl_reduce(std::shared_ptr<const NcclExchange> exchange, const TensorView& x);

// x [R, N] → y [R, ranks · N]. `scratch` has nccl_gather_scratch() bytes: NCCL puts the ranks' rows one behind another.
std::unique_ptr<BoundOp> bind_nccl_gather(std::shared_ptr<const NcclExchange> exchange, const TensorView& x,
                                          const TensorView& y, DeviceAddress scratch);
std::size_t nccl_gather_scratch(const TensorView& y);

}  // namespace tessera::cuda
