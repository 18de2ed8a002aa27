#include "tessera/net/node_arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr std::size_t kMostHelloBytes = std::size_t{1} << 20;

}  // namespace

Result<std::optional<NodeArrivals::Arrival>> NodeArrivals::next(NetClock::time_point deadline) {
  for (;;) {
    if (std::optional<Arrival> come = hear_all()) return come;
    if (NetClock::now() >= deadline) return std::optional<Arrival>();
    wait(deadline);
    // Accepts one connection at a time. A new connection's hello may already have arrived, so the hello is read before
    // the next connection is accepted.
    if (std::optional<Socket> come = TRY(listener_.accept(NetClock::now()))) add(*std::move(come));
  }
}

std::optional<NodeArrivals::Arrival> NodeArrivals::hear_all() {
  for (auto it = unheard_.begin(); it != unheard_.end();) {
    Result<std::optional<NodeHello>> heard = hear(*it);
    if (heard.ok() && !heard->has_value()) {
      ++it;
      continue;
    }
    Socket socket = std::move(it->socket);
    it = unheard_.erase(it);
    if (heard.ok()) return Arrival{.socket = std::move(socket), .hello = **std::move(heard)};
    log_refusal(socket, heard.status().message());
  }
  return std::nullopt;
}

Result<std::optional<NodeHello>> NodeArrivals::hear(Unheard& unheard) {
  const FrameReader::Progress progress = TRY(unheard.reader.advance(unheard.socket, std::chrono::milliseconds(0)));
  if (progress == FrameReader::Progress::kFrame) {
    if (unheard.reader.kind() != FrameKind::kHello)
      return data_loss(fmt::format("its first message is of kind {}", static_cast<int>(unheard.reader.kind())));
    return std::optional<NodeHello>(TRY(unpack_hello(unheard.reader.payload())));
  }
  if (NetClock::now() >= unheard.limit) return data_loss("it did not send its hello in time");
  return std::optional<NodeHello>();
}

void NodeArrivals::add(Socket socket) {
  if (unheard_.size() == limits_.unheard) {
    log_refusal(unheard_.front().socket, "too many other connections came before its hello");
    unheard_.pop_front();
  }
  unheard_.push_back(
      {.socket = std::move(socket), .limit = NetClock::now() + limits_.hello, .reader = FrameReader(kMostHelloBytes)});
}

// Waits until a connection or data arrives, until `deadline`, or until the time limit of the oldest connection without
// a complete hello has passed.
void NodeArrivals::wait(NetClock::time_point deadline) {
  std::vector<int> descriptors{listener_.descriptor()};
  for (const Unheard& unheard : unheard_) descriptors.push_back(unheard.socket.descriptor());
  if (!unheard_.empty()) deadline = std::min(deadline, unheard_.front().limit);
  wait_to_read(descriptors, deadline);
}

std::string NodeArrivals::shortened(std::string_view why) {
  constexpr std::size_t kMostBytes = 500;
  return why.size() <= kMostBytes ? std::string(why) : fmt::format("{} …", why.substr(0, kMostBytes));
}

void NodeArrivals::log_refusal(const Socket& socket, std::string_view reason) {
  const std::string peer = socket.peer();
  const std::string why = shortened(reason);
  std::string what = fmt::format("{} {}", std::string_view(peer).substr(0, peer.rfind(':')), why);
  if (logged_.size() == kMostLogged || !logged_.insert(std::move(what)).second) return;
  log_warn("engine", "a connection from {} cannot take part: {}", peer, why);
  if (logged_.size() == kMostLogged) log_warn("engine", "further connections that cannot take part are not reported");
}

}  // namespace tessera
