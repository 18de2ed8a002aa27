// The way between rank 0 and the other ranks: messages go to all of them, and each answers each message. Ranks of
// this process are threads that receive and reply; for those of other nodes a NodeGroup's connections do (rank_wire.h).
//
//   // rank 0
//   std::vector<std::byte>& message = TRY(channel.begin());
//   …
//   const std::uint64_t number = channel.send();
//   TRY(channel.wait(number));
//   channel.answer(number, rank)
//
//   // rank r
//   while (const std::optional<RankChannel::Message> message = channel.receive(r)) channel.reply(r, message->number,
//   …);
//
// A bounded ring: its buffers are used again, so that nothing is allocated once messages as large were sent. That of a
// message above kMostKeptBytes, such as one of images, is freed once all have answered, by who sends: at wait() or the
// next begin(), when no connection is sending it any more.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// What a rank says to a message once it has done what it asks.
struct RankAnswer {
  Status status{};
  std::int64_t value = 0;            // that the order asks for
  std::uint64_t digest = 0;          // of results (StepDigest)
  bool replay_failed = false;        // the error is that of a graph's launch
  std::vector<std::byte> content{};  // a message, where the order asks for one
};

class RankChannel {
 public:
  static constexpr std::uint64_t kSlots = 8;                      // messages that may be unanswered
  static constexpr std::size_t kMostKeptBytes = 4 * 1024 * 1024;  // of a slot's buffer

  // Who receives. Of a process without rank 0 its own ranks.
  struct Followers {
    int first = 1;
    int end = 2;  // the one behind the last
  };
  // Called for each reply, on the rank's thread, before wait() sees it.
  using OnReply = std::function<void(int rank, std::uint64_t number, const RankAnswer& answer)>;

  // Between rank 0 and the ranks 1 … ranks - 1. A wait of rank 0 takes `limit` at most.
  RankChannel(int ranks, std::chrono::milliseconds limit) : RankChannel({1, ranks}, ranks, limit, {}) {}
  // Between who sends for rank 0 and `followers` of `ranks`.
  RankChannel(Followers followers, int ranks, std::chrono::milliseconds limit, OnReply on_reply);

  int ranks() const { return ranks_; }
  std::chrono::milliseconds limit() const { return limit_; }

  // Rank 0's thread.
  std::uint64_t next_number() const { return sent_ + 1; }
  // The buffer of the next message. Waits for its last one's answers; errors as wait().
  Result<std::vector<std::byte>*> begin();
  std::uint64_t send();
  // Until all ranks have answered the message and those before it. kDeviceLost after `limit`, with the ranks that have
  // not: nothing is known of them. After lose(): that error, at once.
  Status wait(std::uint64_t number);
  Status wait(std::uint64_t number, std::chrono::milliseconds limit);
  // Precondition: wait(number) was ok, and fewer than kSlots messages were sent since.
  const RankAnswer& answer(std::uint64_t number, int rank) const;
  // Ends receive() on all ranks, for good. From any thread.
  void close();
  // Ranks are gone: what waits, or will, returns `why`. From any thread; the first call counts.
  void lose(Status why);
  // Ok, or why ranks are gone. From any thread.
  Status lost() const;

  // Rank `rank`'s thread.
  struct Message {
    std::uint64_t number = 0;
    std::span<const std::byte> bytes;  // valid until it is answered
  };
  // The next message; waits without a limit. None: the channel was closed.
  std::optional<Message> receive(int rank);
  void reply(int rank, std::uint64_t number, RankAnswer answer);
  // The reply of another node's rank, from any thread. kDataLoss where the rank has another message to answer first, or
  // none: an answer that was given may be being read.
  Status take_reply(int rank, std::uint64_t number, RankAnswer answer);

 private:
  struct Slot {
    std::vector<std::byte> bytes;
    std::vector<RankAnswer> answers;  // [ranks]; that of rank 0 is not used
  };
  Slot& slot(std::uint64_t number) { return slots_[number % kSlots]; }
  // Under the lock.
  bool all_answered(std::uint64_t number) const;
  void answer_with(int rank, std::uint64_t number, RankAnswer answer);
  void free_answered();

  const Followers followers_;
  const int ranks_;
  const std::chrono::milliseconds limit_;
  const OnReply on_reply_;
  std::vector<Slot> slots_;  // [kSlots]
  mutable std::mutex mutex_;
  std::condition_variable came_;      // a message, or the end
  std::condition_variable answered_;  // by a rank
  std::uint64_t sent_ = 0;            // number of the last message; the first is 1
  std::vector<std::uint64_t> done_;   // [ranks]: number of the last message that the rank has answered
  bool closed_ = false;
  Status lost_;
};

}  // namespace tessera
