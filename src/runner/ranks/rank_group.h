// Controls all ranks of one model from rank 0. The engine owns the ModelRunner of rank 0, and the other ranks repeat
// its forwards. Every other rank is a thread with its own device, slice of the weights, KV cache and runner. The thread
// belongs to this process or, with a NodeGroup, to another process (rank_node.h).
//
//   std::unique_ptr<RankGroup> ranks = RankGroup::start({.ranks = 2, .body = following(make_host)});
//   const RankLimits agreed = TRY(ranks->agree(own_limits));
//   TRY(ranks->load(agreed, [&] { … the same for rank 0 … }));
//   RunnerOptions options{.communicator = ranks->communicator(), .ranks = ranks.get()};
//
// Rank 0 decides which sizes exist, when they are captured, and which graph runs a forward. The other ranks follow
// (rank_follower.h). Rank 0's runner sends the other ranks each forward together with the decision on how it runs, and
// each order (rank_order.h). A size that fails to capture on one rank is dropped on all.
//
// If a rank fails, it aborts the communicator, which ends the collective operation on all ranks. After all ranks have
// answered, the communicator is restarted and the group continues. The error names the rank that it came from. If a
// rank does not answer within the limit, or has lost its device, the group ends. The current call and all later calls
// then return kDeviceLost.
//
// Threads: rank 0's thread owns the group. The group must outlive the runner whose options point to it.
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

class RankGroup {
 public:
  struct Options {
    int ranks = 2;                             // number of ranks in all stages together
    int stages = 1;                            // pipeline stages; must divide the ranks (RankLayout)
    std::chrono::milliseconds limit{300'000};  // limit of every wait for another rank, except the loading of weights
    RankBody body{};                           // the function that every rank except rank 0 runs
    // The group of processes, each with the same number of ranks. NodeGroup::join must have succeeded, NodeGroup::start
    // must not have been called, and this process must be node 0. If `nodes` is null, all ranks are in this process.
    std::shared_ptr<NodeGroup> nodes{};
  };
  // The maximum time for loading weights. It is long because the speed of the disk or network limits the loading.
  static constexpr std::chrono::hours kLoadLimit{1};
  static std::unique_ptr<RankGroup> start(Options options);
  // Ends the threads. If a thread has not ended within the limit, logs an error and abandons the thread.
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  int ranks() const { return channel_->ranks(); }
  // Called on rank 0's thread. Returns ok, or the reason why the group has ended. A lost node is reported at once.
  Status health() const;
  // Sets a function that is called on another thread when a node is lost. Null removes the function. May be called from
  // any thread.
  void when_lost(std::function<void()> call);
  Communicator& communicator() { return *communicator_; }

  // Returns limits that fit all ranks. If some ranks have room for fewer requests than others, all ranks plan again for
  // the minimum. Rank 0 then calls `plan`. Returns kInvalidArgument if this call is needed and `plan` is empty.
  using PlanAgain = std::function<Result<RankLimits>(std::int64_t max_running)>;
  Result<RankLimits> agree(RankLimits own, const PlanAgain& plan = {});
  // Loads on all ranks at once. Rank 0 calls `local`. If `local` fails, ends the group without waiting for the other
  // ranks.
  Status load(const RankLimits& agreed, const std::function<Status()>& local);
  // Makes every rank carry out the order. Rank 0 carries it out by a call of `local`. Returns ok if all ranks
  // succeeded. While `local` runs, rank 0 sends no messages, because the other ranks are already carrying out the
  // order.
  Status together(const RankOrder& order, const std::function<Status()>& local);
  // Sends the order. Returns the minimum of the ranks' answers and `own`, which is rank 0's value.
  Result<std::int64_t> least(const RankOrder& order, std::int64_t own);
  // Encodes images to embedding rows on all ranks. Each rank uses its own vision tower.
  Status encode_images(std::span<const Patches* const> images, std::span<const std::int64_t> first_rows,
                       const std::function<Status()>& local);
  // Copies an adapter to a slot on all ranks, for forwards that are sent later. Rank 0 calls `local`.
  Status write_adapter(std::int64_t slot, const std::shared_ptr<const Adapter>& adapter,
                       const std::function<Status()>& local);
  // Returns the memory of ranks 1 and up. Each rank answers after it has finished its current work, so this call waits
  // for that work.
  Result<std::vector<MemoryReport>> memory();

  // Sets a function that is called before each RankOrder except kCollect, and before each adapter copy. Null removes
  // it.
  void before_orders(std::function<void()> call) { before_orders_ = std::move(call); }

  // Returns whether rank 0 must send its forwards to the other ranks. Returns false within together(), where rank 0
  // must not send them.
  bool leads() const { return !alone_; }

  // The functions below are for the classes that run a step (runner/steps/) and for DraftStep.
  //
  // Sends a forward, and returns the message's number. If all ranks are in one process, a decode of the same requests
  // as the previous forward allocates nothing. Messages to and from other nodes allocate memory.
  Result<std::uint64_t> send_forward(const ForwardInputs& inputs, const Decision& decision);
  // Returns the message of the most recently sent forward. The message is valid until the next one is sent.
  std::span<const std::byte> last_forward() const { return *last_forward_; }
  // Send work of a next-token layer or a draft model (drafts/draft_step.h), and return the message's number. Allocate
  // memory only for work that is larger than all earlier work.
  Result<std::uint64_t> send_draft_inputs(const DraftInputs& inputs);
  Result<std::uint64_t> send_draft_rows(const DraftRows& rows);
  // Sends an order to the other ranks, and returns the message's number.
  Result<std::uint64_t> send(const RankOrder& order);
  // Waits for the answers to this message and to all earlier ones. If it returns an error, the group has ended.
  Status wait(std::uint64_t number) { return wait(number, channel_->limit()); }
  // Returns the most serious failure among the received answers and `own`, which is rank 0's result. kDeviceLost is the
  // most serious failure and kCancelled the least serious. kCancelled means that an earlier forward, and none of these
  // messages, caused the failure.
  ForwardEnd first_failure(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const;
  // Returns first_failure(), with kInternal in place of kCancelled. Use it if no earlier forward can be the cause.
  ForwardEnd cause(std::span<const std::uint64_t> numbers, const ForwardEnd& own) const;
  // Restarts the communicator after a failure, so that the group continues. If the restart fails, or if `end` is
  // kDeviceLost, the group has ended. Returns `end`, or the error that ended the group. Precondition: all ranks have
  // answered every message.
  ForwardEnd settle(ForwardEnd end);
  // Compares `digest`, the digest of rank 0's results, with the answers to a message. Returns kInternal if another rank
  // of rank 0's stage has answered with a different digest.
  Status same_results(std::uint64_t number, std::uint64_t digest) const;

 private:
  RankGroup(const RankLayout& layout, std::shared_ptr<RankChannel> channel, std::unique_ptr<Communicator> communicator,
            std::shared_ptr<NodeGroup> nodes)
      : layout_(layout),
        channel_(std::move(channel)),
        communicator_(std::move(communicator)),
        nodes_(std::move(nodes)) {}

  void start_nodes(int ranks_here);

  // Packs a message by `pack(writer)`, sends it together with `beside`, and returns its number.
  template <class Pack>
  Result<std::uint64_t> send(RankOrderKind kind, const Pack& pack, std::shared_ptr<const void> beside = {});
  // Makes ranks 1 and up call RankHost::plan, and returns the results.
  Result<std::vector<RankLimits>> plans(std::int64_t max_running);
  // Does rank 0's part (`local`) of the order that was sent as message `number`, and waits for the other ranks.
  Status finish(Result<std::uint64_t> number, const std::function<Status()>& local);
  Status wait(std::uint64_t number, std::chrono::milliseconds limit);
  void restart();

  const RankLayout layout_;
  std::shared_ptr<RankChannel> channel_;
  std::unique_ptr<Communicator> communicator_;  // rank 0's communicator
  const std::shared_ptr<NodeGroup> nodes_;      // null if all ranks are in this process
  RankThreads threads_;
  std::mutex when_lost_mutex_;
  std::function<void()> when_lost_;
  ForwardPacker packer_;
  DraftPacker draft_packer_;
  const std::vector<std::byte>* last_forward_ = nullptr;
  std::function<void()> before_orders_;
  bool alone_ = false;
  Status lost_;  // not ok if the group has ended
};

}  // namespace tessera
