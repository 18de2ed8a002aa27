#include "tessera/net/node_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace tessera {
namespace {

constexpr std::chrono::milliseconds kLook(100);    // time between two checks by a link's thread
constexpr std::chrono::milliseconds kAlive(1000);  // a heartbeat is sent if no frame was sent for this long
constexpr std::chrono::milliseconds kLast(2000);   // how long the other end may take to read the last frames

}  // namespace

void NodeLink::start(TakeFrame take_frame, TakeEnd take_end) {
  take_frame_ = std::move(take_frame);
  take_end_ = std::move(take_end);
  thread_ = std::thread([this] { run(); });
}

Status NodeLink::send(FrameKind kind, FrameParts parts) {
  const std::lock_guard lock(sending_);
  if (ended_) return device_lost(fmt::format("{} is gone: the connection was ended", name_));
  Status sent = send_frame(socket_, kind, parts, silence_);
  last_sent_ = NetClock::now();
  if (sent.code() == StatusCode::kDeviceLost) {
    socket_.shut_down();  // part of a frame may have been sent; the link's thread reports the end
    return std::move(sent).with_context(fmt::format("{} is gone", name_));
  }
  return sent;
}

void NodeLink::leave(const Status& why) {
  const std::lock_guard lock(sending_);
  if (ended_) return;
  ended_ = true;  // set before the other node can answer with a kEnd frame of its own
  const std::span<const std::byte> reason = std::as_bytes(std::span(why.message()));
  // Ignores an error, because a node that has already gone needs no message.
  (void)send_frame(socket_, FrameKind::kEnd, std::span(&reason, 1), kLast);
  socket_.end_sending();
}

void NodeLink::end() {
  leave();
  if (thread_.joinable()) thread_.join();
}

// Sends a heartbeat (FrameKind::kAlive). Does nothing while another thread sends a frame, because any frame shows
// the other end that this node is alive.
void NodeLink::say_alive(NetClock::time_point now) {
  const std::unique_lock lock(sending_, std::try_to_lock);
  if (!lock.owns_lock() || ended_ || now - last_sent_ < std::min(kAlive, silence_ / 4)) return;
  // Ignores the error, because the next receive reports it too.
  if (!send_frame(socket_, FrameKind::kAlive, {}, silence_).ok()) socket_.shut_down();
  last_sent_ = now;
}

Status NodeLink::receive_all() {
  FrameReader reader;
  NetClock::time_point last_heard = NetClock::now();
  NetClock::time_point end_by = NetClock::time_point::max();
  // This thread takes no lock that a send may hold for long. If both ends send much at once, each end must keep
  // reading, because otherwise both sends block.
  for (;;) {
    const FrameReader::Progress progress = TRY(reader.advance(socket_, std::min(kLook, silence_ / 4)));
    const NetClock::time_point now = NetClock::now();
    if (progress != FrameReader::Progress::kNothing) last_heard = now;
    if (now - last_heard > silence_)
      return device_lost(fmt::format("the node sent nothing for {} s", in_seconds(silence_)));
    say_alive(now);
    if (ended_) end_by = std::min(end_by, now + kLast);
    if (now > end_by) return ok_status();
    if (progress != FrameReader::Progress::kFrame || reader.kind() == FrameKind::kAlive) continue;
    if (reader.kind() == FrameKind::kEnd) {
      const std::vector<std::byte>& reason = reader.payload();
      if (reason.empty()) return ok_status();
      return device_lost(std::string(reinterpret_cast<const char*>(reason.data()), reason.size()));
    }
    TRY(take_frame_(reader.kind(), reader.payload()));
  }
}

void NodeLink::run() {
  Status why;
  try {
    why = receive_all();
  } catch (const std::exception& e) {  // usually std::bad_alloc
    why = device_lost(fmt::format("the thread of its connection ended by an exception: {}", e.what()));
  }
  socket_.shut_down();  // the other end need not wait for more
  tell_end(ended_ ? ok_status() : std::move(why));
}

// Reports the end of the other node. If memory runs out, the report is a short message.
void NodeLink::tell_end(const Status& why) {
  Status told;
  try {
    if (!why.ok()) told = device_lost(fmt::format("{} is gone: {}", name_, why.message()));
  } catch (const std::exception&) {
    told = device_lost("a node is gone");
  }
  take_end_(told);
}

}  // namespace tessera
