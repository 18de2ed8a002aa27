#include "tessera/ops/collective.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <utility>

#include "tessera/ops/cpu_math.h"
#include "tessera/ops/cpu_op.h"

namespace tessera {
namespace {

// For i in [begin, end): element i of every tensor = the sum of all tensors' elements i, in order.
template <class T>
TESSERA_CPU_CLONES void reduce_range(const std::vector<TensorView>& tensors, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kBlock = 256;
  float sum[kBlock];
  for (std::int64_t first = begin; first < end; first += kBlock) {
    const std::int64_t n = end - first < kBlock ? end - first : kBlock;
    for (std::int64_t i = 0; i < n; ++i) sum[i] = 0.0f;
    for (const TensorView& tensor : tensors) {
      const T* x = tensor.as<T>() + first;
      for (std::int64_t i = 0; i < n; ++i) sum[i] += to_float(x[i]);
    }
    for (const TensorView& tensor : tensors) {
      T* x = tensor.as<T>() + first;
      for (std::int64_t i = 0; i < n; ++i) x[i] = from_float<T>(sum[i]);
    }
  }
}

}  // namespace

struct Communicator::Group {
  Group(int ranks, std::chrono::milliseconds limit_in)
      : limit(limit_in),
        flags(static_cast<std::size_t>(ranks)),
        tensors(static_cast<std::size_t>(ranks)),
        calls(static_cast<std::size_t>(ranks)) {}

  int size() const { return static_cast<int>(tensors.size()); }
  // Releases all that wait, on hosts and devices. Precondition: the mutex is held.
  void end(Status why) {
    ended = std::move(why);
    for (std::atomic<std::uint32_t>* flag : flags)
      if (flag != nullptr) flag->store(1);
    moved.notify_all();
  }
  // The last rank to arrive releases the others. Precondition: the mutex is held.
  bool arrive() {
    if (++arrived < size()) return false;
    arrived = 0;
    ++generation;
    moved.notify_all();
    return true;
  }

  const std::chrono::milliseconds limit;
  std::mutex mutex;
  std::condition_variable moved;
  int arrived = 0;                                 // ranks at the current barrier
  std::int64_t generation = 0;                     // barriers passed so far
  Status ended;                                    // not ok once a rank has aborted
  std::vector<std::atomic<std::uint32_t>*> flags;  // [ranks], of raise_when_ended()
  // Entry r is written by rank r in enter(); all are read between enter() and leave(). A rank that is not in a call has
  // an empty name.
  std::vector<TensorView> tensors;
  std::vector<std::string_view> calls;
};

Communicator::Communicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

Communicator::~Communicator() { abort("its communicator is gone"); }

std::vector<std::unique_ptr<Communicator>> Communicator::create_group(int ranks, std::chrono::milliseconds limit) {
  const auto group = std::make_shared<Group>(ranks, limit);
  std::vector<std::unique_ptr<Communicator>> members;
  for (int r = 0; r < ranks; ++r) members.push_back(std::unique_ptr<Communicator>(new Communicator(group, r)));
  return members;
}

int Communicator::ranks() const { return group_->size(); }

void Communicator::abort(std::string_view reason) {
  const std::lock_guard lock(group_->mutex);
  if (!group_->ended.ok()) return;
  group_->end(cancelled(fmt::format("rank {} of {} left the group: {}", rank_, ranks(), reason)));
}

Status Communicator::restart() {
  const std::lock_guard lock(group_->mutex);
  if (std::ranges::any_of(group_->flags, [](const auto* flag) { return flag != nullptr; }))
    return failed_precondition("kernels on devices have lost count of one another");
  group_->ended = ok_status();
  group_->arrived = 0;
  std::ranges::fill(group_->calls, std::string_view());
  return ok_status();
}

Status Communicator::status() const {
  const std::lock_guard lock(group_->mutex);
  return group_->ended;
}

void Communicator::raise_when_ended(std::atomic<std::uint32_t>* flag) {
  const std::lock_guard lock(group_->mutex);
  group_->flags[static_cast<std::size_t>(rank_)] = flag;
  if (flag != nullptr && !group_->ended.ok()) flag->store(1);
}

Status Communicator::enter(std::string_view call, const TensorView& x) {
  std::unique_lock lock(group_->mutex);
  if (!group_->ended.ok()) return group_->ended;
  group_->tensors[static_cast<std::size_t>(rank_)] = x;
  group_->calls[static_cast<std::size_t>(rank_)] = call;
  const std::int64_t generation = group_->generation;
  if (group_->arrive()) return ok_status();
  const auto moved = [&] { return group_->generation != generation || !group_->ended.ok(); };
  if (!group_->moved.wait_for(lock, group_->limit, moved)) {
    const auto late = std::ranges::find(group_->calls, std::string_view());
    group_->end(cancelled(fmt::format("rank {} of {} did not come to {} within {} s", late - group_->calls.begin(),
                                      ranks(), call, static_cast<double>(group_->limit.count()) / 1000)));
  }
  // Once all ranks have arrived all of them continue, even if one aborts right after.
  return group_->generation != generation ? ok_status() : group_->ended;
}

void Communicator::leave() {
  // abort() does not end this wait: all ranks are between enter() and here and wait for nothing else, and no rank may
  // free its memory while another still works on it.
  std::unique_lock lock(group_->mutex);
  const std::int64_t generation = group_->generation;
  if (group_->arrived + 1 == group_->size()) std::ranges::fill(group_->calls, std::string_view());
  if (group_->arrive()) return;
  group_->moved.wait(lock, [&] { return group_->generation != generation; });
}

Status Communicator::check_agreement() const {
  const TensorView& first = group_->tensors[0];
  for (std::size_t r = 1; r < group_->tensors.size(); ++r) {
    const TensorView& other = group_->tensors[r];
    if (group_->calls[r] == group_->calls[0] && other.dtype == first.dtype && other.rank == first.rank &&
        other.dims == first.dims)
      continue;
    return internal_error(fmt::format("ranks disagree: rank 0 is in {} with {} elements {}, rank {} in {} with {} {}",
                                      group_->calls[0], first.elements(), ir::dtype_name(first.dtype), r,
                                      group_->calls[r], other.elements(), ir::dtype_name(other.dtype)));
  }
  return ok_status();
}

template <class Body>
Status Communicator::together(std::string_view call, const TensorView& x, const Body& body) {
  TRY(enter(call, x));
  const Status agreed = check_agreement();
  if (agreed.ok()) body();
  leave();
  if (!agreed.ok()) abort(agreed.message());
  return agreed;
}

Status Communicator::all_reduce(const TensorView& x) {
  // Rank r adds up its share of the elements and writes it to every rank: no two ranks touch the same element.
  const std::int64_t begin = x.elements() * rank_ / ranks();
  const std::int64_t end = x.elements() * (rank_ + 1) / ranks();
  return dispatch_dtype(x.dtype, "all_reduce", [&]<class T>() -> Status {
    return together("all_reduce", x, [&] { reduce_range<T>(group_->tensors, begin, end); });
  });
}

Status Communicator::all_gather(const TensorView& x, const TensorView& y) {
  const std::size_t row_bytes = static_cast<std::size_t>(x.dim(1)) * ir::dtype_size(x.dtype);
  return together("all_gather", x, [&] {
    if (row_bytes == 0) return;
    std::byte* to = y.data.raw();
    for (std::size_t row = 0; row < static_cast<std::size_t>(x.dim(0)); ++row)
      for (const TensorView& tensor : group_->tensors) {
        std::memcpy(to, tensor.data.raw() + row * row_bytes, row_bytes);
        to += row_bytes;
      }
  });
}

namespace {

Result<std::vector<ir::Type>> infer_all_reduce(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  if (!ir::is_floating_point(x.dtype) || x.shape.empty())
    return invalid_argument(
        fmt::format("all_reduce takes f32, bf16 or f16 of at least one dimension, not {}", x.to_string()));
  return std::vector<ir::Type>{};
}

Result<std::vector<ir::Type>> infer_all_gather(const ir::OpSignature& signature) {
  const ir::Type& x = signature.operands[0];
  const std::int64_t ranks = signature.node.attribute_or("ranks", std::int64_t{0});
  if (x.shape.size() != 2) return invalid_argument(fmt::format("all_gather takes X[R, N], not {}", x.to_string()));
  if (ranks < 1) return invalid_argument(fmt::format("all_gather's ranks is {}; at least 1 is needed", ranks));
  return std::vector<ir::Type>{{x.dtype, {x.shape[0], x.shape[1] * ranks}}};
}

// A rank that fails ends the group, so that the others do not wait for it.
Status abort_on_error(Communicator& communicator, Status status) {
  if (!status.ok()) communicator.abort(status.message());
  return status;
}

Result<std::unique_ptr<BoundOp>> bind_all_reduce(const BindArgs& args) {
  const TensorView x = args.operands[0];
  Communicator* communicator = args.context.communicator;
  return make_cpu_op("all_reduce", [=]() -> Status {
    if (communicator == nullptr) return ok_status();
    return abort_on_error(*communicator, communicator->all_reduce(x));
  });
}

Result<std::unique_ptr<BoundOp>> bind_all_gather(const BindArgs& args) {
  const TensorView x = args.operands[0];
  const TensorView y = args.results[0];
  Communicator* communicator = args.context.communicator;
  const std::int64_t ranks = args.node.attribute_or("ranks", std::int64_t{0});
  const std::int64_t present = communicator ? communicator->ranks() : 1;
  if (ranks != present)
    return failed_precondition(fmt::format("all_gather was built for {} ranks, but {} run", ranks, present));
  return make_cpu_op("all_gather", [=]() -> Status {
    if (communicator != nullptr) return abort_on_error(*communicator, communicator->all_gather(x, y));
    if (x.bytes() > 0) std::memcpy(y.data.raw(), x.data.raw(), static_cast<std::size_t>(x.bytes()));
    return ok_status();
  });
}

}  // namespace

const ir::OpDecl kAllReduce{
    .name = "all_reduce",
    .summary = "x[*, N] = sum over ranks of x, in rank order",
    .operands = {{.name = "x", .mutated = true}},
    .attributes = {},
    .infer = infer_all_reduce,
    .split_by_default = true,
};

const ir::OpDecl kAllGather{
    .name = "all_gather",
    .summary = "x[R, N] of every rank side by side: y[R, N*ranks]",
    .operands = {{.name = "x"}},
    .attributes = {{.name = "ranks", .kind = ir::AttributeKind::kInt, .required = true}},
    .infer = infer_all_gather,
};

const KernelDef kAllReduceCpu{.op = "all_reduce", .name = "cpu", .bind = bind_all_reduce};
const KernelDef kAllGatherCpu{.op = "all_gather", .name = "cpu", .bind = bind_all_gather};

}  // namespace tessera
