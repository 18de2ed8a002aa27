// Connections to node 0 while it waits for the other nodes, until each has said who it is.
//
//   NodeArrivals arrivals(TRY(Listener::open(address, deadline)));
//   const std::optional<NodeArrivals::Arrival> come = TRY(arrivals.next(deadline));
//
// Whoever reaches the port may connect. All that have yet to say a whole hello are heard at once, each for a bounded
// time, so that one who says nothing, or says it slowly, keeps no node waiting. So many are heard, no more: where one
// more comes, the one that has been silent for longest is closed.
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
  std::chrono::milliseconds hello{5'000};  // from a connection to the end of what it says
  std::size_t unheard = 32;                // connections that have yet to say who they are
};

class NodeArrivals {
 public:
  struct Arrival {
    Socket socket;
    NodeHello hello;
  };

  explicit NodeArrivals(Listener listener, ArrivalLimits limits = {})
      : listener_(std::move(listener)), limits_(limits) {}

  // The next connection that has said a whole hello, whatever is in it; none where none has before `deadline`. Those
  // that say something else are closed.
  Result<std::optional<Arrival>> next(NetClock::time_point deadline);
  // Logs that a connection was turned away: once for each address and reason, and for the first kMostLogged of them.
  void log_refusal(const Socket& socket, std::string_view reason);
  static constexpr std::size_t kMostLogged = 32;
  // As much of a reason as is worth a line: it may quote what the other end said.
  static std::string shortened(std::string_view why);

 private:
  struct Unheard {
    Socket socket;
    NetClock::time_point limit;
    FrameReader reader;
  };
  // Takes what came. A hello where `unheard` has said one; an error where it is closed.
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
