#include "tessera/net/node_join.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr std::size_t kMostHelloBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kHelloLimit(5);  // from a connection to what it says

void refuse(Socket& socket, const Status& why) {
  const std::span<const std::byte> text = std::as_bytes(std::span(why.message()));
  (void)send_frame(socket, FrameKind::kRefused, std::span(&text, 1), kHelloLimit);  // the connection is closed anyway
  // Closed with unread bytes it would be reset, and the reason might not arrive.
  socket.end_sending();
}

void refuse_all(std::vector<Socket>& sockets, const Status& why) {
  for (Socket& socket : sockets)
    if (socket.descriptor() >= 0) refuse(socket, why);
}

// What the other end says first. An error: it is no node.
Result<NodeHello> hear(Socket& socket, NetClock::time_point deadline) {
  FrameReader reader(kMostHelloBytes);
  TRY(receive_frame(socket, reader, std::min(deadline, NetClock::now() + kHelloLimit)));
  if (reader.kind() != FrameKind::kHello)
    return data_loss(fmt::format("its first message is of kind {}", static_cast<int>(reader.kind())));
  return unpack_hello(reader.payload());
}

// A process that joined says nothing more until it is welcome; one that was ended and started anew takes its place.
bool is_there(Socket& socket) {
  std::byte unexpected{};
  const Result<std::size_t> come = socket.receive(std::span(&unexpected, 1), std::chrono::milliseconds(0));
  return come.ok() && *come == 0;
}

// Closes the connections of those that were ended meanwhile.
std::vector<int> missing_nodes(std::vector<Socket>& sockets) {
  std::vector<int> missing;
  for (std::size_t node = 1; node < sockets.size(); ++node) {
    if (sockets[node].descriptor() >= 0 && !is_there(sockets[node])) sockets[node] = Socket();
    if (sockets[node].descriptor() < 0) missing.push_back(static_cast<int>(node));
  }
  return missing;
}

// Into `sockets`, by node.
Status gather(const NodeHello& own, const NodeGroupOptions& options, std::vector<Socket>& sockets) {
  const NetClock::time_point deadline = NetClock::now() + options.join_limit;
  Listener listener = TRY(Listener::open(options.address, deadline));
  for (std::vector<int> missing = missing_nodes(sockets); !missing.empty(); missing = missing_nodes(sockets)) {
    std::optional<Socket> come = TRY(listener.accept(deadline));
    if (!come)
      return not_found(fmt::format("{} {} of {} did not come to {} within {} s", missing.size() == 1 ? "node" : "nodes",
                                   fmt::join(missing, ", "), own.nodes, options.address.text(),
                                   in_seconds(options.join_limit)));
    const Result<NodeHello> hello = hear(*come, deadline);
    if (!hello.ok()) {  // a port scanner, say: nobody that is waited for
      log_warn("engine", "a connection from {} to {} is no node of a model: {}", come->peer(), options.address.text(),
               hello.status().message());
      continue;
    }
    if (Status agreed = check_hello(own, *hello); !agreed.ok()) {
      const std::string from = come->peer();
      refuse(*come, agreed);
      return std::move(agreed).with_context(fmt::format("the node at {} cannot take part", from));
    }
    Socket& place = sockets[static_cast<std::size_t>(hello->node)];
    if (place.descriptor() >= 0 && is_there(place)) {
      refuse(*come,
             invalid_argument(fmt::format("node_rank: node {} is here already, from {}", hello->node, place.peer())));
      continue;
    }
    place = *std::move(come);
  }
  return ok_status();
}

}  // namespace

Result<std::vector<Socket>> wait_for_nodes(const NodeHello& own, const NodeGroupOptions& options) {
  std::vector<Socket> sockets(static_cast<std::size_t>(own.nodes));
  if (Status gathered = gather(own, options, sockets); !gathered.ok()) {
    refuse_all(sockets, gathered);  // those that wait are told why they need not
    return gathered;
  }
  for (std::size_t node = 1; node < sockets.size(); ++node)
    TRY(send_frame(sockets[node], FrameKind::kWelcome, {}, options.silence).with_context(fmt::format("node {}", node)));
  return sockets;
}

Result<Socket> join_node_0(const NodeHello& own, const NodeGroupOptions& options) {
  const NetClock::time_point deadline = NetClock::now() + options.join_limit;
  const std::vector<std::byte> hello = pack_hello(own);
  const std::span<const std::byte> bytes = hello;
  const std::string where = fmt::format("node 0 at {}", options.address.text());
  Result<Socket> connected = connect_until(options.address, deadline);
  if (!connected.ok())
    return not_found(fmt::format("node {} of {} found no node 0 within {} s: {}", own.node, own.nodes,
                                 in_seconds(options.join_limit), connected.status().message()));
  const NetClock::time_point connected_at = NetClock::now();
  Socket socket = *std::move(connected);
  TRY(send_frame(socket, FrameKind::kHello, std::span(&bytes, 1), options.silence).with_context(where));
  FrameReader reader(kMostHelloBytes);
  // It answers once the last node has come, or when its own time is up, which began before this connection.
  TRY(receive_frame(socket, reader, connected_at + options.join_limit + 2 * kHelloLimit).with_context(where));
  if (reader.kind() == FrameKind::kRefused) {
    const std::vector<std::byte>& text = reader.payload();
    return invalid_argument(fmt::format("{} refuses: {}", where,
                                        std::string_view(reinterpret_cast<const char*>(text.data()), text.size())));
  }
  if (reader.kind() != FrameKind::kWelcome)
    return data_loss(fmt::format("{}: its answer is of kind {}", where, static_cast<int>(reader.kind())));
  return socket;
}

}  // namespace tessera
