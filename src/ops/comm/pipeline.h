// Pipeline parallelism: stages of neighbouring layers, and the operators by which hidden states go from one to the
// next. Rank r of a stage sends to rank r of the next one.
//
//   send_to_next(mut x X[T, N])            x goes to the next stage
//   receive_from_previous(mut x X[T, N])   x = what the previous stage sent: first sent, first received
//
// Both sides run the same steps in the same order, so that nothing but the order says what a value is; its bytes are
// compared. x is declared as written by both: no pass may take the one away, or move it past another.
//
// Between ranks on CPUs values wait in host memory (Pipeline), between GPUs of a process in the receiver's memory
// (peer_link.h). A sender waits where kMostWaiting values were not received yet. Stages may be on several nodes, each
// with whole ones: a value goes over the connection then (stage_wire.h), and waits where it is received; between GPUs
// by NCCL (nccl_exchange.h).
#pragma once

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
#include "tessera/ir/op_decl.h"
#include "tessera/ops/comm/stage_wire.h"
#include "tessera/ops/contract/op.h"

namespace tessera {

// The links of all ranks of a process. Any thread may call any of it.
class Pipeline {
 public:
  static constexpr std::size_t kMostWaiting = 16;  // values on a link

  enum class Way { kToNext, kToPrevious };

  // `nodes`: of several processes, with whole stages and as many ranks in each. Null: all ranks are here.
  Pipeline(const RankLayout& layout, std::chrono::milliseconds limit, std::shared_ptr<NodeGroup> nodes = nullptr);

  const RankLayout& layout() const { return layout_; }
  bool is_here(int rank) const { return wire_ == nullptr || wire_->is_here(rank); }
  // The rank that `rank` sends to that way, or receives from. Of a rank in the first or the last stage it may be none:
  // then it is not in the layout.
  int receiver(int rank, Way way) const;
  int sender(int rank, Way way) const;

  // Puts bytes on the rank's link to the stage that `way` says, which the rank has. Waits for room, for the limit at
  // most. kCancelled once the pipeline has ended, which a wait that takes too long does as well.
  Status send(int rank, Way way, std::span<const std::byte> bytes);
  // What the neighbour has sent towards this rank that way: kToNext from the previous stage. internal_error where it
  // has other bytes than `to`.
  Status receive(int rank, Way way, std::span<std::byte> to);

  // All that waits, or will, returns `why`; the first call counts.
  void end(Status why);
  // As it was made, of several nodes for the restart of that number. Precondition: no rank is in a call.
  void begin(std::uint64_t epoch = 0);
  std::uint64_t epoch() const;

  // Frames of other nodes; the payload may be swapped for another buffer. An error: they cannot be read.
  Status take_value(std::vector<std::byte>& payload);
  Status take_taken(std::span<const std::byte> payload);

 private:
  // Values in the order in which they were sent; their memory is used again. Where the sender is on another node
  // StageFrame is in front of each; where the receiver is, `received` is what that node has told.
  struct Link {
    std::vector<std::vector<std::byte>> values;  // [kMostWaiting]
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  Link& link(int rank, int other, Way way);
  // The head of a frame for a rank here, of a link to another node; none: it was passed on.
  Result<std::optional<StageFrame>> open(FrameKind kind, std::span<const std::byte> payload);
  template <class Moved>
  Status wait(std::unique_lock<std::mutex>& lock, int rank, int other, const Moved& moved);

  const RankLayout layout_;
  const std::chrono::milliseconds limit_;
  const std::unique_ptr<StageWire> wire_;  // null: all ranks are here
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<Link> links_;  // [stage that sends to the next][rank][way]
  std::uint64_t epoch_ = 0;
  Status ended_;
};

extern const ir::OpDecl kSendToNext;
extern const KernelDef kSendToNextCpu;
extern const KernelDef kSendToNextCuda;
extern const ir::OpDecl kReceiveFromPrevious;
extern const KernelDef kReceiveFromPreviousCpu;
extern const KernelDef kReceiveFromPreviousCuda;

}  // namespace tessera
