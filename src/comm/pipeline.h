// Implements pipeline parallelism. A stage is a range of consecutive layers, and ranks pass values from one stage to
// the next. Two links connect rank r of a stage with rank r of the next stage, one in each direction. A link is a
// first-in, first-out queue.
//
// The two ranks of a link run the same steps in the same order, so values need no names. Only their sizes are checked.
//
// Between ranks on CPUs, values wait in host memory (Pipeline). A sender waits while kMostWaiting values of the link
// have not been received. Between GPUs of a process, values wait in the receiver's GPU memory (peer_link.h). Stages may
// be on several nodes. Each node then has whole stages. Between CPUs of different nodes, a value travels over a
// connection (stage_wire.h) and waits at the receiver. Between GPUs of different nodes, it travels through NCCL
// (nccl_exchange.h).
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/comm/stage_wire.h"

namespace tessera {

// The links of all ranks of a process. Any thread may call any function.
class Pipeline {
 public:
  static constexpr std::size_t kMostWaiting = 16;  // maximum number of values that wait on a link

  enum class Way { kToNext, kToPrevious };

  // `nodes` is the group of several processes, each with whole stages and the same number of ranks. If null, all ranks
  // are in this process.
  Pipeline(const RankLayout& layout, std::chrono::milliseconds limit, std::shared_ptr<NodeGroup> nodes = nullptr);

  const RankLayout& layout() const { return layout_; }
  bool is_here(int rank) const { return wire_ == nullptr || wire_->is_here(rank); }
  // Return the rank to which `rank` sends, and the rank from which it receives, in direction `way`. At the first or the
  // last stage the result may be outside the layout.
  int receiver(int rank, Way way) const;
  int sender(int rank, Way way) const;

  // Sends `bytes` to the neighbouring stage in direction `way`. That stage must exist. Ends the pipeline if no slot
  // becomes free within the time limit. Returns kCancelled once the pipeline has ended.
  Status send(int rank, Way way, std::span<const std::byte> bytes);
  // Receives the next value that was sent to this rank in direction `way`. With kToNext, the value comes from the
  // previous stage. Returns kInternal if the value and `to` differ in size. Ends the pipeline if no value arrives
  // within the time limit.
  Status receive(int rank, Way way, std::span<std::byte> to);

  // Makes every waiting or later call return `why`. Only the first call of end() has an effect.
  void end(Status why);
  // Resets the pipeline to its initial state. With several nodes, `epoch` is the restart's number. Precondition: no
  // rank is in a call.
  void begin(std::uint64_t epoch = 0);
  std::uint64_t epoch() const;

  // Returns the size in bytes of the buffers in which values wait for this rank, including buffers that are kept for
  // later values.
  std::int64_t bytes(int rank) const;
  // Returns an upper bound of the size in bytes of a link's buffers. The bound holds if every step sends values of the
  // sizes in `values`, and the values of at most `steps` steps wait at a time. `from_here` says whether the sender is
  // in this process.
  static std::int64_t link_bytes(std::span<const std::int64_t> values, bool from_here, int steps);

  // `payload` holds a value that arrived from another node. Stores the value in its link. May swap `payload` for
  // another buffer. Returns an error if the frame cannot be read.
  Status take_value(std::vector<std::byte>& payload);
  // Handles a message in which another node tells how many values it has received. Returns an error if the frame cannot
  // be read.
  Status take_taken(std::span<const std::byte> payload);

 private:
  // The values of one link, in the order in which they were sent. Their memory is reused. If the sender is on another
  // node, a StageFrame precedes each value. If the receiver is on another node, messages from that node update
  // `received`.
  struct Link {
    std::vector<std::vector<std::byte>> values;     // [kMostWaiting]
    std::array<std::size_t, kMostWaiting> bytes{};  // size of each slot's largest value since the slot's last free
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  Link& link(int rank, int other, Way way) { return links_[link_index(rank, other, way)]; }
  std::size_t link_index(int rank, int other, Way way) const;
  // Returns the header of a frame that arrived from another node. If the frame is for a third node, passes it on and
  // returns nothing.
  Result<std::optional<StageFrame>> open(FrameKind kind, std::span<const std::byte> payload);
  template <class Moved>
  Status wait(std::unique_lock<std::mutex>& lock, int rank, int other, const Moved& moved);

  const RankLayout layout_;
  const std::chrono::milliseconds limit_;
  const std::unique_ptr<StageWire> wire_;  // null if all ranks are in this process
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<Link> links_;  // [pairs of neighbouring stages][ranks in a stage][Way], as in link_index()
  std::uint64_t epoch_ = 0;
  Status ended_;
};

}  // namespace tessera
