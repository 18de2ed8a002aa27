#include "tessera/ops/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/ops/collective.h"
#include "tessera/ops/cpu_op.h"

namespace tessera {
namespace {

constexpr std::size_t kMostKeptBytes = std::size_t{4} << 20;  // of a value's memory, once it was received

}  // namespace

Pipeline::Pipeline(const RankLayout& layout, std::chrono::milliseconds limit)
    : layout_(layout), limit_(limit), links_(static_cast<std::size_t>((layout.pp_size - 1) * layout.tp_size * 2)) {
  for (Link& link : links_) link.values.resize(kMostWaiting);
}

// The link between `stage` and the next one.
Pipeline::Link& Pipeline::link(int stage, int rank_in_stage, Way way) {
  return links_[static_cast<std::size_t>((stage * layout_.tp_size + rank_in_stage) * 2 +
                                         (way == Way::kToNext ? 0 : 1))];
}

// Where `other` does not come in time all ends, so that no rank waits on.
template <class Moved>
Status Pipeline::wait(std::unique_lock<std::mutex>& lock, int rank, int other, const Moved& moved) {
  if (!moved_.wait_for(lock, limit_, [&] { return !ended_.ok() || moved(); })) {
    ended_ = cancelled(fmt::format("rank {} of {} did not come to its neighbour in the pipeline, rank {}, within {} s",
                                   other, layout_.ranks(), rank, static_cast<double>(limit_.count()) / 1000));
    moved_.notify_all();
  }
  return ended_;
}

Status Pipeline::send(int rank, Way way, std::span<const std::byte> bytes) {
  const int at = layout_.rank_in_stage(rank);
  const int stage = layout_.stage_of(rank);
  Link& to = link(way == Way::kToNext ? stage : stage - 1, at, way);
  std::unique_lock lock(mutex_);
  TRY(wait(lock, rank, layout_.rank_at(way == Way::kToNext ? stage + 1 : stage - 1, at),
           [&] { return to.sent - to.received < kMostWaiting; }));
  // The slot is this rank's until it is counted as sent.
  std::vector<std::byte>& value = to.values[to.sent % kMostWaiting];
  lock.unlock();
  value.assign(bytes.begin(), bytes.end());
  lock.lock();
  ++to.sent;
  moved_.notify_all();
  return ended_;
}

Status Pipeline::receive(int rank, Way way, std::span<std::byte> to) {
  const int at = layout_.rank_in_stage(rank);
  const int stage = layout_.stage_of(rank);
  const int other = layout_.rank_at(way == Way::kToNext ? stage - 1 : stage + 1, at);
  Link& from = link(way == Way::kToNext ? stage - 1 : stage, at, way);
  std::unique_lock lock(mutex_);
  TRY(wait(lock, rank, other, [&] { return from.sent > from.received; }));
  // The slot is this rank's until it is counted as received.
  std::vector<std::byte>& value = from.values[from.received % kMostWaiting];
  lock.unlock();
  if (value.size() != to.size())
    return internal_error(fmt::format("rank {} of {} sent {} bytes to rank {} in the next stage, which expects {}",
                                      other, layout_.ranks(), value.size(), rank, to.size()));
  std::ranges::copy(value, to.begin());
  if (value.capacity() > kMostKeptBytes) std::vector<std::byte>().swap(value);
  lock.lock();
  ++from.received;
  moved_.notify_all();
  return ended_;
}

void Pipeline::end(Status why) {
  const std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = std::move(why);
  moved_.notify_all();
}

void Pipeline::begin() {
  const std::lock_guard lock(mutex_);
  ended_ = ok_status();
  for (Link& link : links_) link.sent = link.received = 0;
}

namespace {

Result<std::vector<ir::Type>> infer_exchange(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  if (x.shape.size() != 2)
    return invalid_argument(fmt::format("{} takes X[T, N], not {}", signature.node.op, x.to_string()));
  return std::vector<ir::Type>{};
}

Result<Communicator*> communicator_of(const BindArgs& args) {
  Communicator* communicator = args.context.communicator;
  if (communicator != nullptr && communicator->pipeline() != nullptr) return communicator;
  return failed_precondition(fmt::format("{} was built for several stages, and one runs", args.node.op));
}

std::span<std::byte> bytes_of(const TensorView& x) { return {x.data.raw(), static_cast<std::size_t>(x.bytes())}; }

// A rank that fails ends the group, so that the others do not wait for it.
Status abort_on_error(Communicator& communicator, Status status) {
  if (!status.ok()) communicator.abort(status.message());
  return status;
}

Result<std::unique_ptr<BoundOp>> bind_send(const BindArgs& args) {
  Communicator* communicator = TRY(communicator_of(args));
  return make_cpu_op("send_to_next", [communicator, x = args.operands[0]] {
    return abort_on_error(*communicator,
                          communicator->pipeline()->send(communicator->place(), Pipeline::Way::kToNext, bytes_of(x)));
  });
}

Result<std::unique_ptr<BoundOp>> bind_receive(const BindArgs& args) {
  Communicator* communicator = TRY(communicator_of(args));
  return make_cpu_op("receive_from_previous", [communicator, x = args.operands[0]] {
    return abort_on_error(
        *communicator, communicator->pipeline()->receive(communicator->place(), Pipeline::Way::kToNext, bytes_of(x)));
  });
}

}  // namespace

const ir::OpDecl kSendToNext{
    .name = "send_to_next",
    .summary = "x[T, N] goes to the next stage of the pipeline",
    .operands = {{.name = "x", .mutated = true}},
    .infer = infer_exchange,
};

const ir::OpDecl kReceiveFromPrevious{
    .name = "receive_from_previous",
    .summary = "x[T, N] = what the previous stage of the pipeline sent",
    .operands = {{.name = "x", .mutated = true}},
    .infer = infer_exchange,
};

const KernelDef kSendToNextCpu{.op = "send_to_next", .name = "cpu", .bind = bind_send};
const KernelDef kReceiveFromPreviousCpu{.op = "receive_from_previous", .name = "cpu", .bind = bind_receive};

}  // namespace tessera
