// The state that the ranks of this process share for collectives. communicator.cpp and collectives.cpp use it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/node_exchange.h"

namespace tessera {

struct Communicator::Group {
  // `nodes_in` is null if all ranks are in this process.
  Group(int ranks, const std::shared_ptr<NodeGroup>& nodes_in)
      : nodes(nodes_in == nullptr ? nullptr : std::make_unique<NodeExchange>(nodes_in, ranks)),
        first(nodes == nullptr ? 0 : nodes->first_rank()),
        here(nodes == nullptr ? ranks : nodes->ranks_here()),
        tensors(static_cast<std::size_t>(ranks)),
        calls(static_cast<std::size_t>(ranks)) {}

  int size() const { return static_cast<int>(tensors.size()); }
  std::span<const TensorView> tensors_here() const {
    return std::span(tensors).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(here));
  }
  bool follows() const { return nodes != nullptr && !nodes->leads(); }
  // Ends the group and releases all waiting threads and kernels. Precondition: the mutex is held.
  void end(Status why) {
    ended = std::move(why);
    if (nodes != nullptr) nodes->end(ended);
    for (std::atomic<std::uint32_t>* flag : flags) flag->store(1);
    moved.notify_all();
  }
  // Counts a rank that has arrived at the barrier. The last rank releases the others. Precondition: the mutex is held.
  bool arrive() {
    if (++arrived < here) return false;
    arrived = 0;
    ++generation;
    moved.notify_all();
    return true;
  }
  // Waits until all ranks of this process have arrived. Nothing interrupts this wait.
  void meet(bool ends_call) {
    std::unique_lock lock(mutex);
    const std::int64_t came = generation;
    if (ends_call && arrived + 1 == here) std::ranges::fill(calls, std::string_view());
    if (!arrive()) moved.wait(lock, [&] { return generation != came; });
  }
  // Ends the group. Returns false if the group had already ended.
  bool end_once(Status why) {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex);
      if (!ended.ok()) return false;
      end(std::move(why));
      call = told;
    }
    if (call) call();
    return true;
  }
  // Resets the group to its initial state. With several nodes, `epoch` is the number of the restart.
  void begin(std::uint64_t epoch) {
    if (nodes != nullptr) nodes->begin(epoch);
    const std::lock_guard lock(mutex);
    ended = ok_status();
    arrived = 0;
    std::ranges::fill(calls, std::string_view());
  }
  static void take_frames_of(NodeGroup& from, const std::weak_ptr<Group>& group);

  const std::unique_ptr<NodeExchange> nodes;  // null if all ranks are in this process
  const int first;                            // lowest rank of this process
  const int here;                             // number of ranks in this process
  std::mutex mutex;
  std::condition_variable moved;
  int arrived = 0;                                 // number of ranks that have arrived at the current barrier
  std::int64_t generation = 0;                     // number of barriers that were passed until now
  Status ended;                                    // not ok once a rank has aborted
  std::vector<std::atomic<std::uint32_t>*> flags;  // flags that ranks of this process gave to raise_when_ended()
  std::function<void()> told;                      // called when the group ends; when_ended() set it
  // `tensors` and `calls` have an entry for each rank. Rank r writes entry r in enter(). The first rank of this process
  // writes the entries of ranks on other nodes. All ranks read the entries between enter() and leave(). While a rank is
  // in no call, its entry in `calls` is empty.
  std::vector<TensorView> tensors;
  std::vector<std::string_view> calls;
  // The status of the exchange with other nodes. The first rank of this process writes the status between two barriers,
  // and all ranks of this process read it after the second barrier.
  Status exchanged;
  TensorView result;
  // The result of a collective that gives each rank different rows. On node 0 it holds the rows of the ranks of other
  // nodes, and the part for node 0's own ranks is unused. On any other node it holds the rows of the ranks of this
  // process.
  std::vector<std::byte> rows;
  std::size_t most_rows = 0;  // maximum size of `rows` until now, in bytes
};

}  // namespace tessera
