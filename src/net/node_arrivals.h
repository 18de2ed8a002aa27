// While node 0 waits for the other nodes, this class holds each new connection until the connection has identified
// itself.
//
//   NodeArrivals arrivals(TRY(Listener::open(address, deadline)));
//   const std::optional<NodeArrivals::Arrival> come = TRY(arrivals.next(deadline));
//
// Anyone who reaches the port may connect. A node identifies itself by its first message, called hello (node_hello.h).
// All connections without a complete hello are read at the same time, each for a limited time, so a silent or slow
// connection delays no node. The number of these connections is limited too. If a new connection would exceed the
// limit, the oldest one is closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/net/frame.h"
#include "tessera/net/node_hello.h"
#include "tessera/net/socket.h"

namespace tessera {

struct ArrivalLimits {
  std::chrono::milliseconds hello{5'000};  // time from the accept of a connection to the end of its hello
  std::size_t unheard = 32;                // maximum number of connections without a complete hello
};

class NodeArrivals {
 public:
  struct Arrival {
    Socket socket;
    NodeHello hello;
  };

  explicit NodeArrivals(Listener listener, ArrivalLimits limits = {})
      : listener_(std::move(listener)), limits_(limits) {}

  // Returns the next connection with a complete hello, or nothing if none comes before `deadline`. The content of the
  // hello is not checked. A connection that sends anything other than a hello is closed.
  Result<std::optional<Arrival>> next(NetClock::time_point deadline);
  // Logs that a connection was refused. Logs each pair of address and reason once, and at most kMostLogged pairs.
  void log_refusal(const Socket& socket, std::string_view reason);
  static constexpr std::size_t kMostLogged = 32;
  // Returns the reason, shortened for a log line. A reason may quote text of any length that the other end sent.
  static std::string shortened(std::string_view why);

 private:
  struct Unheard {
    Socket socket;
    NetClock::time_point limit;
    FrameReader reader;
  };
  // Reads what has arrived, and returns the hello once it is complete. After an error the connection must be closed.
  static Result<std::optional<NodeHello>> hear(Unheard& unheard);
  std::optional<Arrival> hear_all();
  void add(Socket socket);
  void wait(NetClock::time_point deadline);

  Listener listener_;
  const ArrivalLimits limits_;
  std::list<Unheard> unheard_;  // oldest first
  std::set<std::string> logged_;
};

}  // namespace tessera
