// The ranks of one model, as rank 0 sees them. Rank 0's ModelRunner belongs to the engine, and the other ranks do what
// it does. Each other rank is a thread with its own device, slice of the weights, KV cache and runner. The thread
// belongs to this process or, with a NodeGroup, to another one (rank_node.h).
//
//   std::unique_ptr<RankGroup> ranks = RankGroup::start({.ranks = 2, .host = make_host});
//   const RankLimits agreed = TRY(ranks->agree(own_limits));
//   TRY(ranks->load(agreed, [&] { … the same for rank 0 … }));
//   RunnerOptions options{.communicator = ranks->communicator(), .ranks = ranks.get()};
//
// Rank 0 decides and the others follow (rank_follower.h): which sizes exist, when they are captured, and which graph
// takes a forward. Rank 0's runner sends every step with its decision, and every order (rank_order.h). A size that
// fails to capture on one rank is dropped on all.
//
// A rank that fails aborts the communicator, which ends the collective operation on all ranks. Once all have answered,
// the communicator is restarted and the group continues. The error names the rank that it came from. A rank that does
// not answer within the limit, or has lost its device, ends the group: this call and all later ones return kDeviceLost.
//
// Threads: rank 0's thread owns it. It must outlive the runner that has it in its options.
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
#include "tessera/comm/communicator.h"
#include "tessera/image/patches.h"
#include "tessera/net/node_group.h"
#include "tessera/runner/dispatch/forward_end.h"
#include "tessera/runner/memory/memory_report.h"
#include "tessera/runner/ranks/rank_channel.h"
#include "tessera/runner/ranks/rank_drafts.h"
#include "tessera/runner/ranks/rank_forward.h"
#include "tessera/runner/ranks/rank_order.h"
#include "tessera/runner/ranks/rank_threads.h"

namespace tessera {

class Adapter;
class ModelRunner;

// The work of a rank other than 0. Created, used and destroyed on the rank's own thread.
class RankHost {
 public:
  virtual ~RankHost() = default;
  // Opens the device if it is not open yet. Returns the limits that fit the device with `max_requests` requests; 0
  // stands for the number in its options.
  virtual Result<RankLimits> plan(std::int64_t max_requests) = 0;
  // Returns the runner with its weights, owned by the host. `communicator` must outlive the host.
  virtual Result<ModelRunner*> load(const RankLimits& agreed, Communicator& communicator) = 0;
};

class RankGroup {
 public:
  struct Options {
    int ranks = 2;                             // number of ranks in all stages together
    int stages = 1;                            // pipeline stages; must divide the ranks (RankLayout)
    std::chrono::milliseconds limit{300'000};  // limit of every wait for another rank, except the loading of weights
    MakeRankHost host{};
    // The group of several processes with equally many ranks each. It has joined and not started, and this process is
    // its node 0. Null: all ranks are in this process.
    std::shared_ptr<NodeGroup> nodes{};
  };
  // Limit for loading weights, which takes as long as the disk or network needs.
  static constexpr std::chrono::hours kLoadLimit{1};
  static std::unique_ptr<RankGroup> start(Options options);
  // Ends the threads. A thread that hangs for longer than the limit is left behind, and an error is logged.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int ranks() const { return channel_->ranks(); }
  // Called on rank 0's thread. Returns ok, or why the group has ended. A lost node shows here at once.
  Status health() const;
  // Sets a function that is called on another thread when a node is lost; null removes it. From any thread.
  void when_lost(std::function<void()> call);
  Communicator& communicator() { return *communicator_; }

  // Returns limits that fit all ranks. If some ranks have room for fewer requests than others, all plan again for the
  // least; `plan` plans for rank 0. Returns kInvalidArgument if `plan` is needed and missing.
  using PlanAgain = std::function<Result<RankLimits>(std::int64_t max_requests)>;
  Result<RankLimits> agree(RankLimits own, const PlanAgain& plan = {});
  // Loads on all ranks at once; `local` is rank 0's part. A failure ends the group, without waiting for the other
  // ranks.
  Status load(const RankLimits& agreed, const std::function<Status()>& local);
  // Makes every rank carry the order out; rank 0 does so by `local`. Returns ok if all ranks succeeded. Within `local`
  // rank 0 sends nothing, since the other ranks carry out the same order by themselves.
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // Returns the least of the ranks' answers; `own` is rank 0's.
  Result<std::int64_t> least(const RankOrder& order, std::int64_t own);
  // Encodes images to rows of embeddings on all ranks, each with its own tower.
  Status encode_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                       const std::function<Status()>& local);
  // Copies an adapter to a slot on all ranks, for forwards that are sent later; `local` is rank 0's part.
  Status write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter,
                       const std::function<Status()>& local);
  // Returns the memory of the ranks 1 and up. This is a barrier: the others answer quickly, but only once they have
  // finished their current work.
  Result<std::vector<MemoryReport>> memory();

  // Sets a function that is called before each RankOrder except kCollect, and before write_adapter(). Null removes it.
  void before_orders(std::function<void()> call) { before_orders_ = std::move(call); }

  // Returns whether rank 0's forwards must be sent; false within together().
  bool leads() const { return !alone_; }

  // The functions below serve the classes that run a step (runner/steps/), and DraftStep.
  // Sends a forward, and returns the message's number. Within a process a steady decode allocates nothing; frames to
  // and from other nodes allocate memory.
  Result<std::uint64_t> send_forward(const ForwardInputs& inputs, const Decision& decision);
  // Returns the message of the last sent forward; valid until the next message.
  std::span<const std::byte> last_forward() const { return *last_forward_; }
  // Send work of a next-token layer (drafts/draft_step.h), and return the message's number. Allocate nothing for work
  // no larger than earlier work.
  Result<std::uint64_t> send_draft_inputs(const DraftInputs& inputs);
  Result<std::uint64_t> send_draft_rows(const DraftRows& rows);
  // Sends an order to the other ranks, and returns the message's number.
  Result<std::uint64_t> send(const RankOrder& order);
  // Waits for the answers to a message and to all earlier ones. An error ends the group.
  Status wait(std::uint64_t number) { return wait(number, channel_->limit()); }
  // Returns the first failure among the received answers and rank 0's own end. kCancelled: an earlier forward caused
  // it, not one of these messages.
  ForwardEnd first_failure(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const;
  // Returns first_failure(), with kCancelled turned into kInternal: for use when no earlier forward can explain it.
  ForwardEnd cause(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const;
  // Restarts the communicator after a failure, so that the group continues. If it cannot, or if `end` is kDeviceLost,
  // the group has ended. Returns the end of the forward. Precondition: all ranks have answered every message.
  ForwardEnd settle(ForwardEnd end);
  // `digest` is the digest of rank 0's results. Returns kInternal if another rank of its stage has answered a different
  // one.
  Status same_results(std::uint64_t number, std::uint64_t digest) const;

 private:
  RankGroup(const RankLayout& layout, std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator,
            std::shared_ptr<NodeGroup> nodes)
      : layout_(layout),
        channel_(std::move(channel)),
        communicator_(std::move(communicator)),
        nodes_(std::move(nodes)) {}

  void start_nodes(int ranks_here);

  // Packs a message by `pack(writer)`, sends it with what goes `beside` it, and returns its number.
  template <class Pack>
  Result<std::uint64_t> send(RankOrderKind kind, const Pack& pack, std::shared_ptr<const void> beside = {});
  // Returns the limits of the ranks 1 and up, as RankHost::plan gives them.
  Result<std::vector<RankLimits>> plans(std::int64_t max_requests);
  // Sends the order, does rank 0's part, and waits for the other ranks.
  Status finish(Result<std::uint64_t> number, const std::function<Status()>& local);
  Status wait(std::uint64_t number, std::chrono::milliseconds limit);
  void restart();

  const RankLayout layout_;
  std::shared_ptr<RankChannel> channel_;
  std::unique_ptr<Communicator> communicator_;  // rank 0's
  const std::shared_ptr<NodeGroup> nodes_;      // null: all ranks are in this process
  RankThreads threads_;
  std::mutex when_lost_mutex_;
  std::function<void()> when_lost_;
  ForwardPacker packer_;
  DraftPacker draft_packer_;
  const std::vector<std::byte>* last_forward_ = nullptr;
  std::function<void()> before_orders_;
  bool alone_ = false;
  Status lost_;  // not ok: the group has ended
};

}  // namespace tessera
