// Collectives on a GPU, for a group of one rank. More ranks are refused: there is no exchange between GPUs yet.
#include <fmt/format.h>

#include "tessera/ops/collective.h"

namespace tessera {
namespace {

class CopyOp final : public BoundOp {
 public:
  CopyOp(DeviceAddress to, DeviceAddress from, std::int64_t bytes)
      : to_(to), from_(from), bytes_(static_cast<std::size_t>(bytes)) {}
  Status enqueue(Stream& stream) const override {
    return bytes_ == 0 || to_ == from_ ? ok_status() : stream.copy(to_, from_, bytes_);
  }

 private:
  DeviceAddress to_;
  DeviceAddress from_;
  std::size_t bytes_;
};

Status check_one_rank(const BindArgs& args) {
  if (args.context.communicator == nullptr) return ok_status();
  return unimplemented(fmt::format("{} between GPUs; one rank is accepted", args.node.op));
}

Result<std::unique_ptr<BoundOp>> bind_all_reduce(const BindArgs& args) {
  TRY(check_one_rank(args));
  return std::make_unique<CopyOp>(args.operands[0].data, args.operands[0].data, 0);
}

Result<std::unique_ptr<BoundOp>> bind_all_gather(const BindArgs& args) {
  TRY(check_one_rank(args));
  const std::int64_t ranks = args.node.attribute_or("ranks", std::int64_t{0});
  if (ranks != 1) return failed_precondition(fmt::format("all_gather was built for {} ranks, but 1 run", ranks));
  return std::make_unique<CopyOp>(args.results[0].data, args.operands[0].data, args.operands[0].bytes());
}

}  // namespace

const KernelDef kAllReduceCuda{.op = "all_reduce", .name = "one rank", .bind = bind_all_reduce};
const KernelDef kAllGatherCuda{.op = "all_gather", .name = "one rank", .bind = bind_all_gather};

}  // namespace tessera
