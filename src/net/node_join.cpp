#include "tessera/net/node_join.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tessera/net/node_arrivals.h"

namespace tessera {
namespace {

constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;
constexpr std::chrono::seconds kAnswerLimit(5);  // time for an answer of node 0 to arrive

void refuse(Socket& socket, const Status& why) {
  const std::span<const std::byte> text = std::as_bytes(std::span(why.message()));
  (void)send_frame(socket, FrameKind::kRefused, std::span(&text, 1),
                   kAnswerLimit);  // an error is ignored, because the connection is closed anyway
  // Ends only the sending side. Closing a connection that has unread bytes would reset it, and the reason might then
  // not reach the other end.
  socket.end_sending();
}

void refuse_all(std::vector<Socket>& sockets, const Status& why) {
  for (Socket& socket : sockets)
    if (socket.descriptor() >= 0) refuse(socket, why);
}

// Returns whether a process that has joined is still connected. A joined process sends nothing until all nodes have
// joined, so the connection is alive if a read finds neither data nor an error. If the process has gone, a restarted
// process may take over its node number.
bool is_there(Socket& socket) {
  std::byte unexpected{};
  const Result<std::size_t> come = socket.receive(std::span(&unexpected, 1), std::chrono::milliseconds(0));
  return come.ok() && *come == 0;
}

// Closes the connections of processes that have ended meanwhile. Returns the numbers of the missing nodes.
std::vector<int> missing_nodes(std::vector<Socket>& sockets) {
  std::vector<int> missing;
  for (std::size_t node = 1; node < sockets.size(); ++node) {
    if (sockets[node].descriptor() >= 0 && !is_there(sockets[node])) sockets[node] = Socket();
    if (sockets[node].descriptor() < 0) missing.push_back(static_cast<int>(node));
  }
  return missing;
}

// Stores the connection in `sockets`, at the node number that its hello contains. Returns an error if the hello does
// not match or if another process already has this number.
Status take_place(const NodeHello& own, NodeArrivals::Arrival& come, std::vector<Socket>& sockets) {
  TRY(check_hello(own, come.hello));
  Socket& place = sockets[static_cast<std::size_t>(come.hello.node)];
  if (place.descriptor() >= 0 && is_there(place))
    return invalid_argument(
        fmt::format("node_rank: another node with rank {} has already joined, from {}", come.hello.node, place.peer()));
  place = std::move(come.socket);
  return ok_status();
}

// Fills `sockets`, indexed by node. If a process cannot take part, refuses it and waits for others, because anybody may
// have connected.
Status gather(const NodeHello& own, const NodeGroupOptions& options, std::vector<Socket>& sockets) {
  const NetClock::time_point deadline = NetClock::now() + options.join_limit;
  NodeArrivals arrivals(TRY(Listener::open(options.address, deadline)));
  std::string refused;  // reason of the last refusal, for the error about a node that did not come
  for (std::vector<int> missing = missing_nodes(sockets); !missing.empty(); missing = missing_nodes(sockets)) {
    std::optional<NodeArrivals::Arrival> come = TRY(arrivals.next(deadline));
    if (!come)
      return not_found(fmt::format("{} {} of {} did not come to {} within {} s{}",
                                   missing.size() == 1 ? "node" : "nodes", fmt::join(missing, ", "), own.nodes,
                                   options.address.text(), in_seconds(options.join_limit), refused));
    const Status taken = take_place(own, *come, sockets);
    if (taken.ok()) continue;
    refused = fmt::format("; the node at {} could not take part: {}", come->socket.peer(),
                          NodeArrivals::shortened(taken.message()));
    arrivals.log_refusal(come->socket, taken.message());
    refuse(come->socket, taken);
  }
  return ok_status();
}

}  // namespace

Result<std::vector<Socket>> wait_for_nodes(const NodeHello& own, const NodeGroupOptions& options) {
  std::vector<Socket> sockets(static_cast<std::size_t>(own.nodes));
  if (Status gathered = gather(own, options, sockets); !gathered.ok()) {
    refuse_all(sockets, gathered);  // tells the waiting nodes that they need not wait
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
  FrameReader reader(kMostAnswerBytes);
  // Node 0 replies when the last node has joined or when node 0's time limit is over. Node 0's limit began before this
  // node connected. So this node need not wait much longer than its own limit, counted from the connection.
  TRY(receive_frame(socket, reader, connected_at + options.join_limit + 2 * kAnswerLimit).with_context(where));
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
