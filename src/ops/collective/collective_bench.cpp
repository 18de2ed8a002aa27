// Times collectives between the GPUs of this machine and prints the times side by side:
//
//   collective_bench [RANKS] [LIBNCCL]      2 ranks and libnccl.so.2 by default
//
// It prints a line for each size of a bfloat16 all-reduce. The line has the microseconds per call of the engine's two
// methods (ReduceWay) and of NCCL (0 if NCCL is missing). To measure, it records many calls in a graph and launches the
// graph on all GPUs at once. A GPU that begins early also measures its wait for the other GPUs. The GPU that begins
// last does not wait, so the shortest time of all GPUs counts as the time of the launch. The printed time is the median
// of several launches.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/cuda/cuda_stream.h"
#include "tessera/ops/collective/peer_collectives.h"

namespace tessera::cuda {
namespace {

constexpr int kCalls = 50;
constexpr int kLaunches = 15;
constexpr std::int64_t kLeastBytes = 4 << 10;
constexpr std::int64_t kMostBytes = std::int64_t{64} << 20;

// The part of NCCL's interface that this program uses (nccl.h).
class Nccl {
 public:
  // Returns false if `library` cannot be opened.
  bool open(const char* library, int ranks) {
    // Turns off NCCL's multicast over NVSwitch, because multicast would change the switch's state.
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    void* handle = dlopen(library, RTLD_NOW);
    if (handle == nullptr) return false;
    int (*init_all)(void**, int, const int*) = nullptr;
    find(handle, "ncclCommInitAll", init_all);
    find(handle, "ncclAllReduce", all_reduce_);
    comms_.resize(static_cast<std::size_t>(ranks));
    return init_all != nullptr && all_reduce_ != nullptr && init_all(comms_.data(), ranks, nullptr) == 0;
  }
  Status all_reduce(std::size_t rank, const TensorView& x, CudaStream& stream) const {
    constexpr int kBFloat16 = 9;
    constexpr int kSum = 0;
    TRY(stream.begin_launch("ncclAllReduce"));
    const int error = all_reduce_(x.data.raw(), x.data.raw(), static_cast<std::size_t>(x.elements()), kBFloat16, kSum,
                                  comms_[rank], stream.handle());
    return error == 0 ? ok_status() : internal_error(fmt::format("NCCL's error {}", error));
  }

 private:
  template <class F>
  static void find(void* handle, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(handle, name));
  }
  int (*all_reduce_)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  std::vector<void*> comms_;
};

// Holds the ranks, one for each GPU. Each rank records its graph on its own thread, as NCCL requires. One thread
// launches all graphs.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> create(int ranks) {
    std::unique_ptr<Bench> bench(new Bench);
    bench->group_ = Communicator::create_group(ranks);
    const auto count = static_cast<std::size_t>(ranks);
    bench->ranks_.resize(count);
    // Opening a mailbox waits until all ranks open theirs, so each rank has its own thread here.
    TRY(bench->on_each([&](std::size_t r) { return bench->ranks_[r].open(*bench->group_[r], static_cast<int>(r)); }));
    return bench;
  }

  Result<double> ours(std::int64_t bytes, ReduceWay way) {
    std::vector<std::unique_ptr<BoundOp>> bound;
    for (Rank& rank : ranks_) {
      TRY(rank.device->make_current());
      bound.push_back(TRY(bind_peer_reduce(rank.exchange, rank.view(bytes), way)));
    }
    return time([&](std::size_t r) { return bound[r]->enqueue(*ranks_[r].stream); });
  }
  Result<double> library(std::int64_t bytes, const Nccl& nccl) {
    return time([&](std::size_t r) { return nccl.all_reduce(r, ranks_[r].view(bytes), as_cuda(*ranks_[r].stream)); });
  }

 private:
  struct Rank {
    std::unique_ptr<CudaDevice> device;
    std::unique_ptr<Allocation> memory;
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Event> begin;
    std::unique_ptr<Event> end;
    std::shared_ptr<PeerExchange> exchange;

    Status open(Communicator& communicator, int ordinal) {
      device = TRY(CudaDevice::create({.ordinal = ordinal}));
      memory = TRY(device->allocate(kMostBytes, "x"));
      stream = TRY(device->create_stream("rank"));
      TRY(stream->fill(memory->data(), 0, kMostBytes));
      begin = TRY(device->create_event(EventKind::kTime));
      end = TRY(device->create_event(EventKind::kTime));
      exchange = TRY(PeerExchange::of(communicator, *device));
      return stream->synchronize();
    }
    TensorView view(std::int64_t bytes) const {
      return {.data = memory->data(), .dtype = ir::DType::kBFloat16, .rank = 1, .dims = {bytes / 2}};
    }
  };

  // Runs the function on a thread for each rank and returns the first error.
  Status on_each(const std::function<Status(std::size_t rank)>& run) {
    std::vector<Status> done(ranks_.size(), ok_status());
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < ranks_.size(); ++r) threads.emplace_back([&, r] { done[r] = run(r); });
    for (std::thread& thread : threads) thread.join();
    for (Status& status : done) TRY(std::move(status));
    return ok_status();
  }

  // Returns the microseconds that a rank's GPU takes for the work of one enqueue().
  Result<double> time(const std::function<Status(std::size_t rank)>& enqueue) {
    std::vector<std::unique_ptr<RecordedGraph>> graphs(ranks_.size());
    TRY(on_each([&](std::size_t r) -> Status {
      TRY(enqueue(r));  // NCCL connects the GPUs at the first call of a size, and cannot do so while recording
      TRY(ranks_[r].stream->synchronize());
      TRY(ranks_[r].stream->begin_recording("all-reduces"));
      for (int call = 0; call < kCalls; ++call) TRY(enqueue(r));
      graphs[r] = TRY(ranks_[r].stream->end_recording());
      return ok_status();
    }));
    std::vector<double> times;
    for (int launch = 0; launch < kLaunches; ++launch) {
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        TRY(ranks_[r].stream->record(*ranks_[r].begin));
        TRY(graphs[r]->launch(*ranks_[r].stream));
        TRY(ranks_[r].stream->record(*ranks_[r].end));
      }
      double least = 1e9;
      for (Rank& rank : ranks_) {
        TRY(rank.end->synchronize());
        least = std::min(least, TRY(rank.end->milliseconds_since(*rank.begin)));
      }
      times.push_back(least * 1e3 / kCalls);
    }
    std::nth_element(times.begin(), times.begin() + kLaunches / 2, times.end());
    return times[kLaunches / 2];
  }

  std::vector<std::unique_ptr<Communicator>> group_;
  std::vector<Rank> ranks_;
};

Status run(int ranks, const char* library) {
  const std::unique_ptr<Bench> bench = TRY(Bench::create(ranks));
  Nccl nccl;
  const bool has_nccl = nccl.open(library, ranks);
  fmt::print("{:>8} {:>10} {:>10} {:>10}   µs a call, {} ranks\n", "KiB", "at once", "two steps", "NCCL", ranks);
  for (std::int64_t bytes = kLeastBytes; bytes <= kMostBytes; bytes *= 2) {
    const double at_once = TRY(bench->ours(bytes, ReduceWay::kAtOnce));
    const double two_steps = TRY(bench->ours(bytes, ReduceWay::kTwoSteps));
    const double theirs = has_nccl ? TRY(bench->library(bytes, nccl)) : 0;
    fmt::print("{:>8} {:>10.2f} {:>10.2f} {:>10.2f}\n", bytes >> 10, at_once, two_steps, theirs);
  }
  return ok_status();
}

}  // namespace
}  // namespace tessera::cuda

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 2 || ranks > tessera::cuda::kMostPeers) {
    fmt::print(stderr, "ranks is {}; 2 to {} are accepted\n", argv[1], tessera::cuda::kMostPeers);
    return 2;
  }
  const tessera::Status status = tessera::cuda::run(ranks, argc > 2 ? argv[2] : "libnccl.so.2");
  if (!status.ok()) fmt::print(stderr, "{}\n", status.to_string());
  return status.ok() ? 0 : 1;
}
