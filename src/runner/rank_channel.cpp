#include "tessera/runner/rank_channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tessera {

RankChannel::RankChannel(int ranks, std::chrono::milliseconds limit)
    : ranks_(ranks), limit_(limit), slots_(kSlots), done_(static_cast<std::size_t>(ranks)) {
  for (Slot& slot : slots_) slot.answers.resize(static_cast<std::size_t>(ranks));
}

Result<std::vector<std::byte>*> RankChannel::begin() {
  if (sent_ >= kSlots) TRY(wait(sent_ + 1 - kSlots));
  return &slot(sent_ + 1).bytes;
}

std::uint64_t RankChannel::send() {
  const std::lock_guard lock(mutex_);
  ++sent_;
  came_.notify_all();
  return sent_;
}

Status RankChannel::wait(std::uint64_t number) { return wait(number, limit_); }

Status RankChannel::wait(std::uint64_t number, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (answered_.wait_for(lock, limit, [&] { return all_answered(number); })) return ok_status();
  std::vector<int> missing;
  for (int rank = 1; rank < ranks_; ++rank)
    if (done_[static_cast<std::size_t>(rank)] < number) missing.push_back(rank);
  return device_lost(fmt::format("{} {} of {} did not answer within {} s", missing.size() == 1 ? "rank" : "ranks",
                                 fmt::join(missing, ", "), ranks_, static_cast<double>(limit.count()) / 1000));
}

bool RankChannel::all_answered(std::uint64_t number) const {
  return std::all_of(done_.begin() + 1, done_.end(), [&](std::uint64_t done) { return done >= number; });
}

const RankAnswer& RankChannel::answer(std::uint64_t number, int rank) const {
  return slots_[number % kSlots].answers[static_cast<std::size_t>(rank)];
}

void RankChannel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  came_.notify_all();
}

std::optional<RankChannel::Message> RankChannel::receive(int rank) {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = done_[static_cast<std::size_t>(rank)] + 1;
  came_.wait(lock, [&] { return closed_ || sent_ >= number; });
  if (closed_) return std::nullopt;
  return Message{.number = number, .bytes = slot(number).bytes};
}

void RankChannel::reply(int rank, std::uint64_t number, RankAnswer answer) {
  std::vector<std::byte> freed;  // behind the lock
  const std::lock_guard lock(mutex_);
  Slot& answered = slot(number);
  answered.answers[static_cast<std::size_t>(rank)] = std::move(answer);
  done_[static_cast<std::size_t>(rank)] = number;
  if (answered.bytes.capacity() > kMostKeptBytes && all_answered(number)) freed.swap(answered.bytes);
  answered_.notify_all();
}

}  // namespace tessera
