// Binds the exchanges of rows between GPUs. GPUs of one process access each other's memory. GPUs of several processes
// use NCCL.
#include "tessera/ops/collective/row_exchange.h"

#include <fmt/format.h>

#include "tessera/comm/communicator.h"
#include "tessera/ops/collective/nccl_collectives.h"
#include "tessera/ops/collective/peer_collectives.h"

namespace tessera {
namespace {

// Checks that a rank's rows are a whole number of the 4-byte words that mailboxes carry.
Status check_bytes(const BindArgs& args, std::int64_t bytes) {
  if (bytes % 4 == 0) return ok_status();
  return unimplemented(
      fmt::format("{} between GPUs needs a multiple of 4 bytes per rank, not {}", args.node.op, bytes));
}

// The exchange for a group of one rank. It only copies the rank's own rows, because there are no other ranks.
class CopyOp final : public BoundOp {
 public:
  CopyOp(const TensorView& x, const TensorView& y) : x_(x), y_(y) {}
  Status enqueue(Stream& stream) const override {
    return x_.bytes() == 0 || x_.data == y_.data ? ok_status()
                                                 : stream.copy(y_.data, x_.data, static_cast<std::size_t>(x_.bytes()));
  }

 private:
  TensorView x_;
  TensorView y_;
};

Result<std::unique_ptr<BoundOp>> bind_gather(const BindArgs& args) {
  const TensorView x = args.operands[0];
  const TensorView y = args.results[0];
  if (TRY(ranks_of_exchange(args)) == 1) return std::make_unique<CopyOp>(x, y);
  if (args.context.communicator->spans_processes())
    return cuda::bind_nccl_gather_rows(TRY(cuda::nccl_of(*args.context.communicator, args.device)), x, y);
  TRY(check_bytes(args, x.bytes()));
  return cuda::bind_peer_gather_rows(TRY(cuda::PeerExchange::of(*args.context.communicator, args.device)), x, y);
}

Result<std::unique_ptr<BoundOp>> bind_scatter(const BindArgs& args) {
  const TensorView x = args.operands[0];
  const TensorView y = args.results[0];
  if (TRY(ranks_of_exchange(args)) == 1) return std::make_unique<CopyOp>(x, y);
  if (args.context.communicator->spans_processes())
    return cuda::bind_nccl_scatter(TRY(cuda::nccl_of(*args.context.communicator, args.device)), x, y);
  TRY(check_bytes(args, y.bytes()));
  return cuda::bind_peer_scatter(TRY(cuda::PeerExchange::of(*args.context.communicator, args.device)), x, y);
}

}  // namespace

const KernelDef kAllGatherRowsCuda{.op = "all_gather_rows", .name = "peers or nccl", .bind = bind_gather};
const KernelDef kReduceScatterCuda{.op = "reduce_scatter", .name = "peers or nccl", .bind = bind_scatter};

}  // namespace tessera
