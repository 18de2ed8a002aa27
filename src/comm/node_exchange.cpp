#include "tessera/comm/node_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace tessera {
namespace {

// The collectives. Frames identify a collective by its index in this list.
constexpr std::array<std::string_view, 4> kCalls = {"all_reduce", "all_gather", "all_gather_rows", "reduce_scatter"};

// The header of a frame that carries a result, and the first bytes of the header of a frame that carries tensors.
struct WireNumber {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
};
// The header of a frame that carries tensors. The bytes of the tensors follow, one tensor after another.
struct WireTensors {
  WireNumber at;
  std::uint32_t call = 0;
  std::uint32_t dtype = 0;
  std::int32_t rank = 0;
  std::uint32_t tensors = 0;
  std::array<std::int64_t, kMaxRank> dims{};
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(const TensorView& tensor) {
  return {tensor.data.raw(), static_cast<std::size_t>(tensor.bytes())};
}

template <class T>
T read(std::span<const std::byte> from) {
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  return value;
}

bool same_form(const WireTensors& sent, const TensorView& own) {
  return sent.dtype == static_cast<std::uint32_t>(own.dtype) && sent.rank == own.rank && sent.dims == own.dims;
}

}  // namespace

NodeExchange::NodeExchange(std::shared_ptr<NodeGroup> nodes, int ranks)
    : nodes_(std::move(nodes)),
      ranks_here_(ranks / nodes_->nodes()),
      inboxes_(static_cast<std::size_t>(nodes_->nodes())) {}

Status NodeExchange::wait(std::string_view call, int first, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const auto missing = [&] {
    return std::find_if(inboxes_.begin() + first, first == 0 ? inboxes_.begin() + 1 : inboxes_.end(),
                        [](const Inbox& inbox) { return !inbox.full; });
  };
  const auto end = first == 0 ? inboxes_.begin() + 1 : inboxes_.end();
  const bool moved = came_.wait_for(lock, limit, [&] { return !ended_.ok() || missing() == end; });
  TRY(ended_);
  if (!moved)
    return cancelled(fmt::format("{} did not come to {} within {} s",
                                 nodes_->name(static_cast<int>(missing() - inboxes_.begin())), call,
                                 std::chrono::duration<double>(limit).count()));
  return ok_status();
}

void NodeExchange::empty() {
  const std::lock_guard lock(mutex_);
  for (Inbox& inbox : inboxes_) inbox.full = false;
}

Status NodeExchange::collect(std::span<TensorView> tensors, std::span<std::string_view> calls,
                             std::chrono::milliseconds limit) {
  ++number_;
  TRY(wait(calls[0], 1, limit));
  const TensorView& own = tensors[0];
  const auto bytes = static_cast<std::size_t>(own.bytes());
  for (int node = 1; node < nodes_->nodes(); ++node) {
    std::vector<std::byte>& come = inboxes_[static_cast<std::size_t>(node)].bytes;
    const auto sent = read<WireTensors>(come);
    const auto here = static_cast<std::size_t>(ranks_here_);
    if (sent.at.number != number_ || sent.call >= kCalls.size() || sent.rank < 0 || sent.rank > kMaxRank ||
        sent.dtype > static_cast<std::uint32_t>(ir::DType::kFloat8E4M3))
      return internal_error(
          fmt::format("{} is in collective {}, node 0 in {}", nodes_->name(node), sent.at.number, number_));
    const bool same = same_form(sent, own);
    if (same && (sent.tensors != here || come.size() != sizeof(sent) + here * bytes))
      return internal_error(fmt::format("{} sent {} tensors in {} bytes; {} of {} bytes are accepted",
                                        nodes_->name(node), sent.tensors, come.size(), here, bytes));
    for (std::size_t i = 0; i < here; ++i) {
      TensorView& view = tensors[static_cast<std::size_t>(node) * here + i];
      view = {.dtype = static_cast<ir::DType>(sent.dtype), .rank = sent.rank, .dims = sent.dims};
      if (same) view.data = {come.data() + sizeof(sent), i * bytes};
      calls[static_cast<std::size_t>(node) * here + i] = kCalls[sent.call];
    }
  }
  return ok_status();
}

Status NodeExchange::spread(const TensorView& result, bool in_parts) {
  empty();  // first, because a node that has its result sends its next tensors
  const WireNumber at{.epoch = epoch(), .number = number_};
  const std::span<const std::byte> whole = bytes_of(result);
  if (!in_parts) return nodes_->send_to_all(FrameKind::kResult, std::array{bytes_of(at), whole});
  const std::size_t part = whole.size() / static_cast<std::size_t>(nodes_->nodes());
  Status failed;
  for (int node = 1; node < nodes_->nodes(); ++node) {
    const std::array parts = {bytes_of(at), whole.subspan(static_cast<std::size_t>(node) * part, part)};
    Status sent = nodes_->send(node, FrameKind::kResult, parts);
    if (failed.ok()) failed = std::move(sent);
  }
  return failed;
}

Status NodeExchange::trade(std::string_view call, std::span<const TensorView> tensors, const TensorView& result,
                           std::chrono::milliseconds limit) {
  const TensorView& first = tensors[0];
  const auto place = static_cast<std::uint32_t>(std::ranges::find(kCalls, call) - kCalls.begin());
  const WireTensors sent{.at = {.epoch = epoch(), .number = ++number_},
                         .call = place,
                         .dtype = static_cast<std::uint32_t>(first.dtype),
                         .rank = first.rank,
                         .tensors = static_cast<std::uint32_t>(tensors.size()),
                         .dims = first.dims};
  parts_.assign({bytes_of(sent)});
  for (const TensorView& tensor : tensors) parts_.push_back(bytes_of(tensor));
  TRY(nodes_->send(0, FrameKind::kTensors, parts_));
  TRY(wait(call, 0, limit));
  const std::vector<std::byte>& come = inboxes_[0].bytes;
  const auto bytes = static_cast<std::size_t>(result.bytes());
  const auto at = read<WireNumber>(come);
  if (at.number != number_ || come.size() != sizeof(at) + bytes)
    return internal_error(fmt::format("node 0 sent result {} of {} bytes; {} of {} bytes is accepted", at.number,
                                      come.size() - sizeof(at), number_, bytes));
  if (bytes > 0) std::memcpy(result.data.raw(), come.data() + sizeof(at), bytes);
  empty();
  return ok_status();
}

void NodeExchange::end(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = why;
  came_.notify_all();
}

void NodeExchange::begin(std::uint64_t epoch) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  number_ = 0;
  ended_ = ok_status();
  for (Inbox& inbox : inboxes_) inbox.full = false;
}

std::uint64_t NodeExchange::epoch() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

std::int64_t NodeExchange::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Inbox& inbox : inboxes_) sum += inbox.most;
  return static_cast<std::int64_t>(sum);
}

std::int64_t NodeExchange::tensors_bytes(std::int64_t tensors) {
  return static_cast<std::int64_t>(sizeof(WireTensors)) + tensors;
}

std::int64_t NodeExchange::result_bytes(std::int64_t result) {
  return static_cast<std::int64_t>(sizeof(WireNumber)) + result;
}

Status NodeExchange::take_tensors(int node, std::vector<std::byte>& payload) {
  if (payload.size() < sizeof(WireTensors))
    return data_loss(
        fmt::format("it sent tensors in {} bytes; their head alone has {}", payload.size(), sizeof(WireTensors)));
  return take(inboxes_[static_cast<std::size_t>(node)], payload);
}

Status NodeExchange::take_result(std::vector<std::byte>& payload) {
  if (payload.size() < sizeof(WireNumber))
    return data_loss(
        fmt::format("it sent a result in {} bytes; its head alone has {}", payload.size(), sizeof(WireNumber)));
  return take(inboxes_[0], payload);
}

Status NodeExchange::take(Inbox& inbox, std::vector<std::byte>& payload) {
  const std::lock_guard lock(mutex_);
  // A frame of an earlier epoch is dropped, because no rank waits for it. Once the exchange has ended, every frame is
  // dropped for the same reason.
  if (read<WireNumber>(payload).epoch != epoch_ || !ended_.ok()) return ok_status();
  if (inbox.full) return data_loss("it sent tensors of two collectives at once");
  inbox.bytes.swap(payload);
  inbox.most = std::max(inbox.most, inbox.bytes.size());
  inbox.full = true;
  came_.notify_all();
  return ok_status();
}

}  // namespace tessera
