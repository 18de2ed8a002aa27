// The channel between rank 0 and the other ranks. Rank 0 sends each message to all other ranks, and each of them
// answers it. Ranks of this process are threads that call receive() and reply(). Messages to ranks of other nodes and
// their answers travel over the connections of a NodeGroup (rank_wire.h).
//
//   // rank 0
//   std::vector<std::byte>& message = TRY(channel.begin());
//   …
//   const std::uint64_t number = channel.send();
//   TRY(channel.wait(number));
//   channel.answer(number, rank)
//
//   // rank r
//   while (const std::optional<RankChannel::Message> message = channel.receive(r))
//     channel.reply(r, message->number, …);
//
// The channel is a ring of kSlots buffers that are reused, so it allocates memory only for a message that is larger
// than earlier ones. A buffer of more than kMostKeptBytes, such as one with images, is freed after all ranks have
// answered. The sender frees it in wait() or in the next begin(), when no connection can still be sending it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// A rank's answer to a message. A rank answers after it has done what the message orders.
struct RankAnswer {
  Status status{};
  std::int64_t value = 0;            // the value that the order requests
  std::uint64_t digest = 0;          // hash of the results (steps/step_digest.h)
  bool replay_failed = false;        // the error is a failed launch of a graph
  std::vector<std::byte> content{};  // a message, if the order requests one
};

class RankChannel {
 public:
  static constexpr std::uint64_t kSlots = 8;                      // maximum number of unanswered messages
  static constexpr std::size_t kMostKeptBytes = 4 * 1024 * 1024;  // maximum size of a buffer that a slot keeps

  // The range of ranks that receive messages. In a process without rank 0, all ranks of the process receive them.
  struct Followers {
    int first = 1;
    int end = 2;  // one past the last
  };
  // Called for each reply, on the replying rank's thread, before wait() sees it.
  using OnReply = std::function<void(int rank, std::uint64_t number, const RankAnswer& answer)>;

  // Connects rank 0 with the ranks 1 … ranks - 1. `limit` is the maximum time of every wait of rank 0.
  RankChannel(int ranks, std::chrono::milliseconds limit) : RankChannel({1, ranks}, ranks, limit, {}) {}
  // Connects a sender with `followers`, which are some of the ranks 0 … ranks - 1. The sender stands in for rank 0.
  RankChannel(Followers followers, int ranks, std::chrono::milliseconds limit, OnReply on_reply);

  int ranks() const { return ranks_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // next_number(), begin(), send(), wait() and answer() are called on rank 0's thread.
  std::uint64_t next_number() const { return sent_ + 1; }
  // Returns the buffer of the next message. Waits for the answers to the previous message that used this buffer.
  // Returns the errors of wait().
  Result<std::vector<std::byte>*> begin();
  // Sends the message. `beside` is an object that only the ranks of this process receive with the message. It is kept
  // until all ranks have answered.
  std::uint64_t send(std::shared_ptr<const void> beside = {});
  // Waits until all ranks have answered this message and all earlier ones. If some ranks have not answered within
  // `limit`, their state is unknown. wait() then returns kDeviceLost with a text that names these ranks. After
  // lose(why), returns `why` at once.
  Status wait(std::uint64_t number);
  Status wait(std::uint64_t number, std::chrono::milliseconds limit);
  // Returns a rank's answer to a message. Precondition: wait(number) returned ok, and fewer than kSlots messages were
  // sent after message `number`.
  const RankAnswer& answer(std::uint64_t number, int rank) const;
  // Makes receive() return nothing on all ranks from now on. May be called from any thread.
  void close();
  // Declares ranks lost. Every current and later wait then returns `why`. Any thread may call this function. Only the
  // first call has an effect.
  void lose(Status why);
  // Returns the error of lose(), or ok. May be called from any thread.
  Status lost() const;

  // The functions below are called on the thread of rank `rank`, except take_reply().
  struct Message {
    std::uint64_t number = 0;
    std::span<const std::byte> bytes;  // valid until the message is answered
    std::shared_ptr<const void> beside{};
  };
  // Waits for the next message without a time limit and returns it. Returns nothing if the channel is closed.
  std::optional<Message> receive(int rank);
  void reply(int rank, std::uint64_t number, RankAnswer answer);
  // Stores the answer of a rank on another node. May be called from any thread. Returns kDataLoss if this is not the
  // rank's next answer, because a second answer to a message would overwrite an answer that rank 0 may be reading.
  Status take_reply(int rank, std::uint64_t number, RankAnswer answer);

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    std::shared_ptr<const void> beside;
    std::vector<RankAnswer> answers;  // [ranks]; the entry of rank 0 is unused
  };
  Slot& slot(std::uint64_t number) { return slots_[number % kSlots]; }
  // These functions are called while mutex_ is locked.
  bool all_answered(std::uint64_t number) const;
  void answer_with(int rank, std::uint64_t number, RankAnswer answer);
  void free_answered();

  const Followers followers_;
  const int ranks_;
  const std::chrono::milliseconds limit_;
  const OnReply on_reply_;
  std::vector<Slot> slots_;  // [kSlots]
  mutable std::mutex mutex_;
  std::condition_variable came_;      // signals a new message or the closed channel
  std::condition_variable answered_;  // signals an answer
  std::uint64_t sent_ = 0;            // number of the last message; the first one is 1
  std::vector<std::uint64_t> done_;   // number of the last message that each rank has answered
  bool closed_ = false;
  Status lost_;
};

}  // namespace tessera
