#include "tessera/runner/ranks/rank_channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera {

RankChannel::RankChannel(Followers followers, int ranks, std::chrono::milliseconds limit, OnReply on_reply)
    : followers_(followers),
      ranks_(ranks),
      limit_(limit),
      on_reply_(std::move(on_reply)),
      slots_(kSlots),
      done_(static_cast<std::size_t>(ranks)) {
  for (Slot& slot : slots_) slot.answers.resize(static_cast<std::size_t>(ranks));
}

Result<std::vector<std::byte>*> RankChannel::begin() {
  if (sent_ >= kSlots) TRY(wait(sent_ + 1 - kSlots));
  {
    const std::lock_guard lock(mutex_);
    free_answered();
  }
  return &slot(sent_ + 1).bytes;
}

std::uint64_t RankChannel::send(std::shared_ptr<const void> beside) {
  const std::lock_guard lock(mutex_);
  ++sent_;
  slot(sent_).beside = std::move(beside);
  came_.notify_all();
  return sent_;
}

Status RankChannel::wait(std::uint64_t number) { return wait(number, limit_); }

Status RankChannel::wait(std::uint64_t number, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool moved = answered_.wait_for(lock, limit, [&] { return !lost_.ok() || all_answered(number); });
  TRY(lost_);
  if (moved) {
    free_answered();
    return ok_status();
  }
  std::vector<int> missing;
  for (int rank = followers_.first; rank < followers_.end; ++rank)
    if (done_[static_cast<std::size_t>(rank)] < number) missing.push_back(rank);
  return device_lost(fmt::format("{} {} of {} did not answer within {} s", missing.size() == 1 ? "rank" : "ranks",
                                 fmt::join(missing, ", "), ranks_, static_cast<double>(limit.count()) / 1000));
}

bool RankChannel::all_answered(std::uint64_t number) const {
  return std::all_of(done_.begin() + followers_.first, done_.begin() + followers_.end,
                     [&](std::uint64_t done) { return done >= number; });
}

const RankAnswer& RankChannel::answer(std::uint64_t number, int rank) const {
  return slots_[number % kSlots].answers[static_cast<std::size_t>(rank)];
}

void RankChannel::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  came_.notify_all();
}

void RankChannel::lose(Status why) {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = std::move(why);
  answered_.notify_all();
}

Status RankChannel::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

std::optional<RankChannel::Message> RankChannel::receive(int rank) {
  std::unique_lock lock(mutex_);
  const std::uint64_t number = done_[static_cast<std::size_t>(rank)] + 1;
  came_.wait(lock, [&] { return closed_ || sent_ >= number; });
  if (closed_) return std::nullopt;
  return Message{.number = number, .bytes = slot(number).bytes, .beside = slot(number).beside};
}

void RankChannel::reply(int rank, std::uint64_t number, RankAnswer answer) {
  if (on_reply_) on_reply_(rank, number, answer);
  const std::lock_guard lock(mutex_);
  answer_with(rank, number, std::move(answer));
}

Status RankChannel::take_reply(int rank, std::uint64_t number, RankAnswer answer) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t next = rank >= followers_.first && rank < followers_.end
                                 ? done_[static_cast<std::size_t>(rank)] + 1
                                 : std::numeric_limits<std::uint64_t>::max();
  if (number != next || number > sent_)
    return data_loss(fmt::format("it sent an answer of rank {} to message {}", rank, number));
  answer_with(rank, number, std::move(answer));
  return ok_status();
}

void RankChannel::answer_with(int rank, std::uint64_t number, RankAnswer answer) {
  slot(number).answers[static_cast<std::size_t>(rank)] = std::move(answer);
  done_[static_cast<std::size_t>(rank)] = number;
  answered_.notify_all();
}

void RankChannel::free_answered() {
  for (std::uint64_t number = sent_; number > 0 && sent_ - number < kSlots; --number) {
    if (!all_answered(number)) continue;
    slot(number).beside.reset();
    std::vector<std::byte>& bytes = slot(number).bytes;
    if (bytes.capacity() > kMostKeptBytes) std::vector<std::byte>().swap(bytes);
  }
}

}  // namespace tessera
