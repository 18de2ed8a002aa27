#include "tessera/comm/nccl_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/log.h"
#include "tessera/comm/introduction.h"
#include "tessera/comm/pipeline.h"

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook(50);
// A thread watches each rank. After the group's end, this thread waits kRankEnds for the rank to end by itself. A rank
// that does not end in this time hangs in a kernel or in an NCCL call. The thread then waits kRankEnds again, for a
// running NCCL call to return. After that the thread aborts NCCL's communicator.
constexpr std::chrono::seconds kRankEnds(1);
// The maximum wait for the end of the watching thread. The thread may be inside an NCCL abort, which waits for NCCL's
// own threads and for threads that serve other processes of the machine. Or the thread may be telling another node that
// the group has ended. If the other node does not answer, the telling takes up to NodeGroupOptions::silence, which is
// 15 s. The limit is above 15 s, because the Communicator must exist until the thread has ended.
constexpr std::chrono::seconds kAbortLimit(20);

// The data that each rank sends to the other ranks before NCCL connects the ranks.
struct Introduction {
  NcclId id;  // made by rank 0
  std::int32_t version = 0;
  std::array<char, 40> gpu{};
};

std::string_view gpu_of(const Introduction& rank) {
  return {rank.gpu.data(), strnlen(rank.gpu.data(), rank.gpu.size())};
}

// Checks that all ranks use the same version of NCCL and different GPUs. `places` holds each rank's number among the
// ranks of all stages, for errors.
Status check_ranks(std::span<const Introduction> all, std::span<const int> places) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].version != all[0].version)
      return invalid_argument(
          fmt::format("rank {} loads NCCL {}, but rank {} loads NCCL {}; all ranks need the same version", places[0],
                      NcclLibrary::version_text(all[0].version), places[r], NcclLibrary::version_text(all[r].version)));
    for (std::size_t other = 0; other < r; ++other)
      if (all[other].gpu == all[r].gpu)
        return invalid_argument(
            fmt::format("ranks {} and {} are both on GPU {}; each needs one of its own, which --device cuda:N says "
                        "for the processes of one machine",
                        places[other], places[r], gpu_of(all[r])));
  }
  return ok_status();
}

// An attempt to connect to all other ranks. NCCL has no timeout, so the attempt never completes if a rank is gone. The
// attempt therefore runs in a separate thread. If the rank's own time limit passes or the group ends, the rank abandons
// this thread.
struct Connecting {
  std::mutex mutex;
  std::condition_variable moved;
  // The members below are guarded by the mutex.
  std::optional<Status> is_current{};   // whether the GPU could be made current for the thread
  std::optional<Result<void*>> comm{};  // set once ncclCommInitRank has returned
  bool left = false;                    // set if no thread waits for the result any more

  void run(const NcclLibrary& nccl, int ranks, const NcclId& id, int rank,
           const std::function<Status()>& make_current) {
    Status current = make_current();
    {
      const std::lock_guard lock(mutex);
      is_current = current;
      moved.notify_all();
    }
    if (!current.ok()) return;
    void* made = nullptr;
    Status connected = nccl.check(nccl.call().init_rank(&made, ranks, id, rank), "ncclCommInitRank");
    const std::lock_guard lock(mutex);
    if (left && connected.ok()) (void)nccl.call().abort(made);
    comm = connected.ok() ? Result<void*>(made) : Result<void*>(std::move(connected));
    moved.notify_all();
  }
};

Result<void*> connect(Communicator& communicator, const std::shared_ptr<const NcclLibrary>& nccl, const NcclId& id,
                      int rank, int ranks, const std::function<Status()>& make_current) {
  const auto connecting = std::make_shared<Connecting>();
  std::thread([=] { connecting->run(*nccl, ranks, id, rank, make_current); }).detach();
  const auto deadline = std::chrono::steady_clock::now() + communicator.limit();
  std::unique_lock lock(connecting->mutex);
  connecting->moved.wait(lock, [&] { return connecting->is_current.has_value(); });
  TRY(*connecting->is_current);
  while (!connecting->moved.wait_for(lock, kLook, [&] { return connecting->comm.has_value(); })) {
    Status ended = communicator.status();
    if (ended.ok() && std::chrono::steady_clock::now() < deadline) continue;
    connecting->left = true;
    TRY(std::move(ended));
    return cancelled(fmt::format(
        "rank {} of {} is not connected to the others by NCCL within {} s; NCCL_DEBUG=INFO in the environment says "
        "what it does, NCCL_SOCKET_IFNAME which network it takes",
        communicator.world_rank(), communicator.world_size(),
        static_cast<double>(communicator.limit().count()) / 1000));
  }
  return *std::move(connecting->comm);
}

Result<NcclType> type_of(ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kFloat32: return NcclType::kFloat32;
    case ir::DType::kFloat16: return NcclType::kFloat16;
    case ir::DType::kBFloat16: return NcclType::kBFloat16;
    default: return unimplemented(fmt::format("sums of {} between GPUs", ir::dtype_name(dtype)));
  }
}

}  // namespace

// The data shared by the rank and the thread that watches it. The thread may outlive the rank if NCCL hangs.
struct NcclExchange::Shared {
  std::shared_ptr<const NcclLibrary> nccl;
  void* comm = nullptr;
  int rank = 0;
  int ranks = 1;
  std::atomic<std::uint32_t> ended = 0;  // 1 if the group has ended
  std::mutex calls;                      // held during NCCL calls; only an abort may run during another call
  std::mutex mutex;
  std::condition_variable woken;
  bool closing = false;  // guarded by the mutex; set when the rank's exchange is destroyed
  std::thread watch;
  std::future<void> watched;

  // Runs `collective` unless the group has ended.
  template <class Collective>
  Status run(std::string_view function, const Collective& collective) {
    const std::lock_guard lock(calls);
    if (ended.load() != 0) return cancelled(fmt::format("{}: the group of ranks has ended", function));
    return nccl->check(collective(), function);
  }

  // Waits for at most `limit`. Returns whether the rank's exchange is being destroyed.
  bool closes_within(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex);
    return woken.wait_for(lock, limit, [this] { return closing; });
  }

  // Waits until the running call has returned, for at most kRankEnds. No other call begins, because the group has
  // ended.
  void let_call_end() {
    const auto deadline = std::chrono::steady_clock::now() + kRankEnds;
    std::unique_lock lock(calls, std::defer_lock);
    while (!lock.try_lock() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(kLook);
  }

  // Watches until the rank or its group ends. If the group ends, the function waits for at most kRankEnds, so that the
  // rank can end by itself. It aborts NCCL's communicator only if the rank does not end in this time. An earlier abort
  // would block, because it waits until the graphs that recorded the collectives are destroyed, and the rank destroys
  // these graphs only when it ends.
  void watch_over(Communicator& communicator) {
    bool closes = false;
    while (ended.load() == 0 && !closes) {
      closes = closes_within(kLook);
      int result = kNcclSuccess;
      const Status asked = nccl->check(nccl->call().get_async_error(comm, &result), "ncclCommGetAsyncError");
      const Status lost = asked.ok() && result != kNcclInProgress ? nccl->check(result, "NCCL") : asked;
      // If the rank has ended during the call of get_async_error, the Communicator may be gone and must not be used.
      if (lost.ok() || closes) continue;
      closes = closes_within(std::chrono::milliseconds(0));
      if (!closes) communicator.abort(lost.message());
    }
    if (closes || closes_within(kRankEnds)) return;
    let_call_end();
    (void)nccl->call().abort(comm);  // only an abort ends a call that hangs
  }
};

// The ranks of one NCCL communicator, and the function by which they exchange messages before NCCL connects them.
struct NcclExchange::Meeting {
  int rank = 0;             // this rank's number in the communicator
  std::vector<int> places;  // each rank's number among the ranks of all stages
  std::function<Result<std::vector<Introduction>>(const Introduction& mine)> introduce;
};

Result<std::shared_ptr<NcclExchange>> NcclExchange::make(Communicator& communicator,
                                                         std::weak_ptr<DeviceExchange>& kept, const Meeting& meeting,
                                                         const Place& place) {
  if (std::shared_ptr<DeviceExchange> there = kept.lock())
    return std::static_pointer_cast<NcclExchange>(std::move(there));
  std::shared_ptr<NcclExchange> made(new NcclExchange);
  const Status opened = made->open(communicator, meeting, place);
  if (!opened.ok()) {
    communicator.abort(opened.message());
    return opened;
  }
  kept = made;
  return made;
}

Result<std::shared_ptr<NcclExchange>> NcclExchange::of(Communicator& communicator, const Place& place) {
  Meeting meeting{.rank = communicator.rank(), .places = {}, .introduce = [&](const Introduction& mine) {
                    return tessera::introduce(communicator, mine);
                  }};
  for (int rank = 0; rank < communicator.ranks(); ++rank)
    meeting.places.push_back(communicator.world_rank() - communicator.rank() + rank);
  return make(communicator, communicator.device_state().ranks, meeting, place);
}

Result<std::shared_ptr<NcclExchange>> NcclExchange::link(Communicator& communicator, bool to_next, const Place& place) {
  using Way = Pipeline::Way;
  Pipeline& pipeline = *communicator.pipeline();
  const int own = communicator.world_rank();
  const auto introduce = [&](const Introduction& mine) -> Result<std::vector<Introduction>> {
    Introduction other;
    TRY(pipeline.send(own, to_next ? Way::kToNext : Way::kToPrevious, std::as_bytes(std::span(&mine, 1))));
    TRY(pipeline.receive(own, to_next ? Way::kToPrevious : Way::kToNext, std::as_writable_bytes(std::span(&other, 1))));
    return to_next ? std::vector{mine, other} : std::vector{other, mine};
  };
  const int sender = to_next ? own : pipeline.sender(own, Way::kToNext);
  return make(
      communicator, communicator.device_state().link(to_next),
      {.rank = to_next ? 0 : 1, .places = {sender, pipeline.receiver(sender, Way::kToNext)}, .introduce = introduce},
      place);
}

Status NcclExchange::open(Communicator& communicator, const Meeting& meeting, const Place& place) {
  auto shared = std::make_shared<Shared>();
  shared->nccl = TRY(NcclLibrary::open(place.library));
  const NcclLibrary& nccl = *shared->nccl;
  Introduction mine{.id = {}, .version = nccl.version()};
  TRY(place.gpu()).copy(mine.gpu.data(), mine.gpu.size());
  if (meeting.rank == 0) TRY(nccl.check(nccl.call().get_unique_id(&mine.id), "ncclGetUniqueId"));
  const std::vector<Introduction> all = TRY(meeting.introduce(mine));
  TRY(check_ranks(all, meeting.places));
  shared->rank = meeting.rank;
  shared->ranks = static_cast<int>(all.size());
  const std::int64_t free = place.available();
  shared->comm = TRY(connect(communicator, shared->nccl, all[0].id, shared->rank, shared->ranks, place.make_current));
  bytes_ = std::max<std::int64_t>(free - place.available(), 0);
  communicator.raise_when_ended(&shared->ended);
  communicator_ = &communicator;
  std::packaged_task<void()> watch([shared, &communicator] { shared->watch_over(communicator); });
  shared->watched = watch.get_future();
  shared->watch = std::thread(std::move(watch));
  shared_ = std::move(shared);
  return ok_status();
}

NcclExchange::~NcclExchange() {
  if (communicator_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
    shared_->woken.notify_all();
  }
  if (shared_->watched.wait_for(kAbortLimit) == std::future_status::ready) {
    shared_->watch.join();
  } else {
    log_error("engine", "rank {}: the thread that watches NCCL did not end within {} s; it is abandoned",
              communicator_->world_rank(), kAbortLimit.count());
    shared_->watch.detach();
  }
  communicator_->take_back(&shared_->ended);
}

const NcclLibrary& NcclExchange::library() const { return *shared_->nccl; }
int NcclExchange::ranks() const { return shared_->ranks; }

Status NcclExchange::all_reduce(const TensorView& x, void* stream) const {
  const int type = static_cast<int>(TRY(type_of(x.dtype)));
  if (x.elements() == 0) return ok_status();
  return shared_->run("ncclAllReduce", [&] {
    return shared_->nccl->call().all_reduce(x.data.raw(), x.data.raw(), static_cast<std::size_t>(x.elements()), type,
                                            kNcclSum, shared_->comm, stream);
  });
}

Status NcclExchange::all_gather(DeviceAddress from, DeviceAddress to, std::size_t bytes, void* stream) const {
  if (bytes == 0) return ok_status();
  return shared_->run("ncclAllGather", [&] {
    return shared_->nccl->call().all_gather(from.raw(), to.raw(), bytes, static_cast<int>(NcclType::kUInt8),
                                            shared_->comm, stream);
  });
}

Status NcclExchange::reduce_scatter(const TensorView& x, const TensorView& y, void* stream) const {
  const int type = static_cast<int>(TRY(type_of(x.dtype)));
  if (y.elements() == 0) return ok_status();
  return shared_->run("ncclReduceScatter", [&] {
    return shared_->nccl->call().reduce_scatter(x.data.raw(), y.data.raw(), static_cast<std::size_t>(y.elements()),
                                                type, kNcclSum, shared_->comm, stream);
  });
}

Status NcclExchange::hand_on(const TensorView& x, void* stream) const {
  const auto bytes = static_cast<std::size_t>(x.bytes());
  const int type = static_cast<int>(NcclType::kUInt8);
  const bool sends = shared_->rank == 0;
  if (bytes == 0) return ok_status();
  return shared_->run(sends ? "ncclSend" : "ncclRecv", [&] {
    const NcclFunctions& nccl = shared_->nccl->call();
    return sends ? nccl.send(x.data.raw(), bytes, type, 1, shared_->comm, stream)
                 : nccl.receive(x.data.raw(), bytes, type, 0, shared_->comm, stream);
  });
}

}  // namespace tessera
