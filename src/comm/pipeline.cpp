#include "tessera/comm/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera {
namespace {

// If the buffer of a slot is at most this large, the slot keeps it for later values. A larger buffer is freed once its
// value is received.
constexpr std::size_t kMostKeptBytes = std::size_t{4} << 20;
// After every kToldAfter values from a sender on another node, a receiver tells the sender how many values it has
// received. kToldAfter is less than kMostWaiting, so that the sender does not have to wait for this message.
constexpr std::uint64_t kToldAfter = Pipeline::kMostWaiting / 2;

}  // namespace

Pipeline::Pipeline(const RankLayout& layout, std::chrono::milliseconds limit, std::shared_ptr<NodeGroup> nodes)
    : layout_(layout),
      limit_(limit),
      wire_(nodes == nullptr ? nullptr : std::make_unique<StageWire>(std::move(nodes), layout.ranks())),
      links_(static_cast<std::size_t>((layout.pp_size - 1) * layout.tp_size * 2)) {
  for (Link& link : links_) link.values.resize(kMostWaiting);
}

int Pipeline::receiver(int rank, Way way) const {
  return rank + (way == Way::kToNext ? -layout_.tp_size : layout_.tp_size);
}
int Pipeline::sender(int rank, Way way) const {
  return rank + (way == Way::kToNext ? layout_.tp_size : -layout_.tp_size);
}

// Returns the index in `links_` of the link that leads in direction `way` between two ranks of neighbouring stages.
std::size_t Pipeline::link_index(int rank, int other, Way way) const {
  const int stage = std::min(layout_.stage_of(rank), layout_.stage_of(other));
  const int pair = stage * layout_.tp_size + layout_.rank_in_stage(rank);
  return static_cast<std::size_t>(pair) * 2 + (way == Way::kToNext ? 0 : 1);
}

// Waits until `moved` returns true. If it does not within the pipeline's time limit, ends the pipeline with an error
// that names rank `other`, so that no other rank keeps waiting.
template <class Moved>
Status Pipeline::wait(std::unique_lock<std::mutex>& lock, int rank, int other, const Moved& moved) {
  if (!moved_.wait_for(lock, limit_, [&] { return !ended_.ok() || moved(); })) {
    ended_ = cancelled(fmt::format("rank {} of {} did not meet rank {}, its neighbour in the pipeline, within {} s",
                                   other, layout_.ranks(), rank, static_cast<double>(limit_.count()) / 1000));
    moved_.notify_all();
  }
  return ended_;
}

Status Pipeline::send(int rank, Way way, std::span<const std::byte> bytes) {
  const int other = receiver(rank, way);
  Link& to = link(rank, other, way);
  std::unique_lock lock(mutex_);
  TRY(wait(lock, rank, other, [&] { return to.sent - to.received < kMostWaiting; }));
  if (!is_here(other)) {
    // The value is counted before it is sent, because the other node may report that it has received the value while
    // send() still runs.
    const StageFrame head{.epoch = epoch_, .number = to.sent++, .rank = other, .way = static_cast<std::int32_t>(way)};
    lock.unlock();
    return wire_->send(FrameKind::kStageValue, head, bytes);
  }
  // Until the value is counted as sent, only this rank uses the slot. The copy therefore needs no lock.
  const std::size_t place = to.sent % kMostWaiting;
  lock.unlock();
  to.values[place].assign(bytes.begin(), bytes.end());
  lock.lock();
  to.bytes[place] = std::max(to.bytes[place], bytes.size());
  ++to.sent;
  moved_.notify_all();
  return ended_;
}

Status Pipeline::receive(int rank, Way way, std::span<std::byte> to) {
  const int other = sender(rank, way);
  Link& from = link(rank, other, way);
  std::unique_lock lock(mutex_);
  TRY(wait(lock, rank, other, [&] { return from.sent > from.received; }));
  // Until the value is counted as received, only this rank uses the slot. The copy therefore needs no lock.
  const std::size_t place = from.received % kMostWaiting;
  std::vector<std::byte>& slot = from.values[place];
  lock.unlock();
  const std::span<const std::byte> value = std::span(slot).subspan(is_here(other) ? 0 : sizeof(StageFrame));
  if (value.size() != to.size())
    return internal_error(fmt::format("rank {} of {} sent {} bytes to rank {} in the next stage, which expects {}",
                                      other, layout_.ranks(), value.size(), rank, to.size()));
  std::ranges::copy(value, to.begin());
  const bool is_kept = slot.capacity() <= kMostKeptBytes;
  if (!is_kept) std::vector<std::byte>().swap(slot);
  lock.lock();
  if (!is_kept) from.bytes[place] = 0;
  ++from.received;
  moved_.notify_all();
  TRY(ended_);
  if (is_here(other) || from.received % kToldAfter != 0) return ok_status();
  const StageFrame taken{
      .epoch = epoch_, .number = from.received, .rank = other, .way = static_cast<std::int32_t>(way)};
  lock.unlock();
  return wire_->send(FrameKind::kStageTaken, taken, {});
}

Result<std::optional<StageFrame>> Pipeline::open(FrameKind kind, std::span<const std::byte> payload) {
  std::optional<StageFrame> head = TRY(wire_->open(kind, payload));
  if (!head) return head;
  const auto way = static_cast<Way>(head->way);
  const bool known = way == Way::kToNext || way == Way::kToPrevious;
  const int other = !known ? -1 : kind == FrameKind::kStageValue ? sender(head->rank, way) : receiver(head->rank, way);
  if (other < 0 || other >= layout_.ranks() || is_here(other))
    return data_loss(fmt::format("it sent rank {} a value that no other node has for it", head->rank));
  return head;
}

Status Pipeline::take_value(std::vector<std::byte>& payload) {
  const std::optional<StageFrame> head = TRY(open(FrameKind::kStageValue, payload));
  if (!head) return ok_status();
  const auto way = static_cast<Way>(head->way);
  const std::lock_guard lock(mutex_);
  if (head->epoch != epoch_ || !ended_.ok()) return ok_status();  // no rank waits for this value any more
  Link& from = link(head->rank, sender(head->rank, way), way);
  if (head->number != from.sent || from.sent - from.received >= kMostWaiting)
    return data_loss(fmt::format(
        "it sent value {} to rank {}, which has received {} of {} values; they come in order, and at most {} may wait",
        head->number, head->rank, from.received, from.sent, kMostWaiting));
  const std::size_t place = from.sent % kMostWaiting;
  from.bytes[place] = std::max(from.bytes[place], payload.size());
  from.values[place].swap(payload);
  ++from.sent;
  moved_.notify_all();
  return ok_status();
}

Status Pipeline::take_taken(std::span<const std::byte> payload) {
  const std::optional<StageFrame> head = TRY(open(FrameKind::kStageTaken, payload));
  if (!head) return ok_status();
  const auto way = static_cast<Way>(head->way);
  const std::lock_guard lock(mutex_);
  if (head->epoch != epoch_ || !ended_.ok()) return ok_status();
  Link& to = link(head->rank, receiver(head->rank, way), way);
  if (head->number < to.received || head->number > to.sent)
    return data_loss(
        fmt::format("it received {} values of rank {}, which has sent {}", head->number, head->rank, to.sent));
  to.received = head->number;
  moved_.notify_all();
  return ok_status();
}

std::int64_t Pipeline::bytes(int rank) const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Way way : {Way::kToNext, Way::kToPrevious}) {
    const int other = sender(rank, way);
    if (other < 0 || other >= layout_.ranks()) continue;
    for (const std::size_t bytes : links_[link_index(rank, other, way)].bytes) sum += bytes;
  }
  return static_cast<std::int64_t>(sum);
}

std::int64_t Pipeline::link_bytes(std::span<const std::int64_t> values, bool from_here, int steps) {
  // Values use the slots in turn, so a slot holds values of different sizes one after another.
  std::array<std::int64_t, kMostWaiting> kept{};
  std::int64_t passing = 0;  // bytes of values whose memory is freed once they are received
  for (std::size_t n = 0; n < values.size() * kMostWaiting; ++n) {
    const std::int64_t bytes =
        values[n % values.size()] + (from_here ? 0 : static_cast<std::int64_t>(sizeof(StageFrame)));
    if (bytes <= static_cast<std::int64_t>(kMostKeptBytes)) {
      kept[n % kMostWaiting] = std::max(kept[n % kMostWaiting], bytes);
    } else if (n < values.size()) {
      passing += bytes * steps;
    }
  }
  return std::accumulate(kept.begin(), kept.end(), passing);
}

void Pipeline::end(Status why) {
  const std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = std::move(why);
  moved_.notify_all();
}

void Pipeline::begin(std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  ended_ = ok_status();
  for (Link& link : links_) link.sent = link.received = 0;
}

std::uint64_t Pipeline::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

}  // namespace tessera
