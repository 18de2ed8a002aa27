// Ranks of one model, seen from rank 0: its ModelRunner is the engine's, and what that does, the others do too. Each of
// the others is a thread with a device, a slice of the weights, a KV cache and a runner of its own: of this process, or
// with a NodeGroup, of another one (rank_node.h).
//
//   std::unique_ptr<RankGroup> ranks = RankGroup::start({.ranks = 2, .host = make_host});
//   const RankLimits agreed = TRY(ranks->agree(own_limits));
//   TRY(ranks->load(agreed, [&] { … the same for rank 0 … }));
//   RunnerOptions options{.communicator = ranks->communicator(), .ranks = ranks.get()};
//
// Rank 0 decides and the others follow (rank_follower.h): which sizes there are, what is captured when, which graph
// takes a forward. Its runner sends every step, with its decision, and every order (rank_order.h); a capture that fails
// on one rank is dropped on all.
//
// A rank that fails ends what all are in, by the communicator's abort; once all have answered, the communicator is
// restarted and the group goes on. The error names the rank it came from. A rank that does not answer within the limit,
// or has lost its device, is the end of the group: kDeviceLost, then and from then on.
//
// Threads: rank 0's, which owns it. It outlives the runner that has it in its options.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/image/patches.h"
#include "tessera/net/node_group.h"
#include "tessera/ops/comm/collective.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_forward.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

class ModelRunner;

// What makes a rank other than 0. Made, used and destroyed on the rank's own thread.
class RankHost {
 public:
  virtual ~RankHost() = default;
  // Opens the device where it is not open, and says what it has room for: for so many requests, or with 0 as many as
  // its options say.
  virtual Result<RankLimits> plan(std::int64_t max_requests) = 0;
  // The runner, with its weights; the host owns it. `communicator` outlives the host.
  virtual Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) = 0;
};

class RankGroup {
 public:
  struct Options {
    int ranks = 2;                             // of all stages
    int stages = 1;                            // of a pipeline; divide the ranks (RankLayout)
    std::chrono::milliseconds limit{300'000};  // of every wait for another rank, but for the loading of weights
    MakeRankHost host{};
    // Of several processes, each with as many ranks: joined, not started, and this one node 0. Null: all ranks are
    // here.
    std::shared_ptr<NodeGroup> nodes{};
  };
  // Weights come from a disk or a network as fast as they come.
  static constexpr std::chrono::hours kLoadLimit{1};
  static std::unique_ptr<RankGroup> start(Options options);
  // Ends the threads; one that hangs for longer than the limit is left behind, and an error logged.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int ranks() const { return channel_->ranks(); }
  // Rank 0's thread. Ok, or why the group has ended: that a node is gone shows here at once.
  Status health() const;
  // Called when a node is gone, on another thread; null takes it back. From any thread.
  void when_lost(std::function<void()> call);
  Communicator& communicator() { return *communicator_; }

  // What fits all ranks. Where some have room for fewer requests than others, all plan again for the least; `plan` is
  // that of rank 0. Without it kInvalidArgument.
  using PlanAgain = std::function<Result<RankLimits>(std::int64_t max_requests)>;
  Result<RankLimits> agree(RankLimits own, const PlanAgain& plan = {});
  // Loads on all ranks at once; `local` is rank 0's part. Where that fails the others are not waited for, and the group
  // has ended.
  Status load(const RankLimits& agreed, const std::function<Status()>& local);
  // Every rank carries the order out, rank 0 as `local`. Ok where it was on all. Within `local` rank 0 is alone: what
  // it does there, the others do by themselves.
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // The least of what the ranks answer, `own` being rank 0's.
  Result<std::int64_t> least(const RankOrder& order, std::int64_t own);
  // Images to rows of embeddings on all ranks, by each one's tower.
  Status encode_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                       const std::function<Status()>& local);
  // Of the ranks 1 …. A barrier: the others answer it in a moment, but not before what they are at.
  Result<std::vector<MemoryReport>> memory();

  // `call` is made before each order that rank 0 carries out as well, or that all answer; null takes it back.
  void before_orders(std::function<void()> call) { before_orders_ = std::move(call); }

  // Whether rank 0's forwards are to be sent: not within together().
  bool leads() const { return !alone_; }
  // Forwards. Each that was sent ends with forward_failed() or collected(); within a process nothing is allocated in a
  // steady decode; to and from other nodes frames take memory.
  Status send_forward(const ForwardInputs& inputs, const Decision& decision);
  struct Failure {
    Status status;
    bool replay_failed = false;  // the launch of a graph, on the rank that it began on
  };
  // The newest one failed on rank 0, perhaps because it did on another: why, as all see it; kCancelled where no rank
  // failed in it, but one had in a forward before. It is in flight nowhere.
  Failure forward_failed(const Status& own, bool replay_failed);
  // The message of the forward that was sent last; valid until the next message.
  std::span<const std::byte> last_forward() const { return *last_forward_; }
  // Where forwards are collected as they run (ModelRunner::collects_as_it_runs): rank 0 has run the oldest one, and
  // what collected() says. After an error none is in flight.
  Failure ran(const Status& own, bool replay_failed, std::uint64_t digest);
  // The others collect the oldest as well.
  Status send_collect();
  // Once rank 0 has: the error of any rank, or kInternal where a rank of the last stage has other results than rank 0.
  // Ok in `status` otherwise.
  Failure collected(const Status& own, std::uint64_t digest);

 private:
  RankGroup(const RankLayout& layout, std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator,
            std::shared_ptr<NodeGroup> nodes)
      : layout_(layout),
        channel_(std::move(channel)),
        communicator_(std::move(communicator)),
        nodes_(std::move(nodes)) {}

  void start_nodes(int ranks_here);

  // Packs a message by `pack(writer)` and sends it: its number.
  template <class Pack>
  Result<std::uint64_t> send(RankOrderKind kind, const Pack& pack);
  Result<std::uint64_t> send(const RankOrder& order);
  // Those of the ranks 1 …, as RankHost::plan has them.
  Result<std::vector<RankLimits>> plans(std::int64_t max_requests);
  // Sends, does rank 0's part, and waits for the others.
  Status finish(Result<std::uint64_t> number, const std::function<Status()>& local);
  // Waits for the answers to a message, and those before it.
  Status wait(std::uint64_t number, std::chrono::milliseconds limit);
  // Of answers that are there; kCancelled where none of these messages is to blame.
  Failure first_failure(std::span<const std::uint64_t> numbers, const Status& own, bool replay_failed) const;
  // The same where nothing else explains it.
  Failure cause(std::span<const std::uint64_t> numbers, const Status& own, bool replay_failed) const;
  // kInternal where a rank of this stage has other results than `digest`, rank 0's.
  Status same_results(std::uint64_t number, std::uint64_t digest) const;
  void restart();

  const RankLayout layout_;
  std::shared_ptr<RankChannel> channel_;
  std::unique_ptr<Communicator> communicator_;  // of rank 0
  const std::shared_ptr<NodeGroup> nodes_;      // null: all ranks are in this process
  RankThreads threads_;
  std::mutex when_lost_mutex_;
  std::function<void()> when_lost_;
  ForwardPacker packer_;
  std::vector<std::uint64_t> in_flight_;  // messages of forwards, oldest first
  const std::vector<std::byte>* last_forward_ = nullptr;
  std::uint64_t collecting_ = 0;  // message
  std::function<void()> before_orders_;
  bool alone_ = false;
  Status lost_;  // not ok: the group has ended
};

}  // namespace tessera
