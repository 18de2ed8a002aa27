// Pipeline parallelism: stages of neighbouring layers, and the operators by which hidden states go from one to the
// next. Rank r of a stage sends to rank r of the next one.
//
//   send_to_next(mut x X[T, N])            x goes to the next stage
//   receive_from_previous(mut x X[T, N])   x = what the previous stage sent: first sent, first received
//
// Both sides run the same steps in the same order, so that nothing but the order says what a value is; its bytes are
// compared. x is declared as written by both: no pass may take the one away, or move it past another.
//
// Between ranks on CPUs values wait in host memory (Pipeline), between GPUs in the receiver's memory (peer_link.h). A
// sender waits where kMostWaiting values were not received yet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "tessera/base/rank_layout.h"
#include "tessera/base/status.h"
#include "tessera/ir/op_decl.h"
#include "tessera/ops/op.h"

namespace tessera {

// The links of all ranks of a process. Any thread may call any of it.
class Pipeline {
 public:
  static constexpr std::size_t kMostWaiting = 16;  // values on a link

  enum class Way { kToNext, kToPrevious };

  Pipeline(const RankLayout& layout, std::chrono::milliseconds limit);

  const RankLayout& layout() const { return layout_; }

  // Puts bytes on the rank's link to the stage that `way` says, which the rank has. Waits for room, for the limit at
  // most. kCancelled once the pipeline has ended, which a wait that takes too long does as well.
  Status send(int rank, Way way, std::span<const std::byte> bytes);
  // What the neighbour has sent towards this rank that way: kToNext from the previous stage. internal_error where it
  // has other bytes than `to`.
  Status receive(int rank, Way way, std::span<std::byte> to);

  // All that waits, or will, returns `why`; the first call counts.
  void end(Status why);
  // As it was made. Precondition: no rank is in a call.
  void begin();

 private:
  // Values in the order in which they were sent; their memory is used again.
  struct Link {
    std::vector<std::vector<std::byte>> values;  // [kMostWaiting]
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
  };
  Link& link(int stage, int rank_in_stage, Way way);
  template <class Moved>
  Status wait(std::unique_lock<std::mutex>& lock, int rank, int other, const Moved& moved);

  const RankLayout layout_;
  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::vector<Link> links_;  // [stage that sends to the next][rank][way]
  Status ended_;
};

extern const ir::OpDecl kSendToNext;
extern const KernelDef kSendToNextCpu;
extern const KernelDef kSendToNextCuda;
extern const ir::OpDecl kReceiveFromPrevious;
extern const KernelDef kReceiveFromPreviousCpu;
extern const KernelDef kReceiveFromPreviousCuda;

}  // namespace tessera
