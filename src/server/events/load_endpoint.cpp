#include "tessera/server/events/load_endpoint.h"

#include <fmt/format.h>

#include <optional>

namespace tessera {
namespace {

// Returns whether two ranges of `count` ports overlap. The ranges begin at the addresses' ports.
bool overlap(const std::optional<TcpAddress>& a, const std::optional<TcpAddress>& b, int count) {
  return a && b && a->port < b->port + count && b->port < a->port + count;
}

Result<TcpAddress> after_events(const KvEventsOptions& events, int engines) {
  const std::optional<TcpAddress> published = tcp_address(events.endpoint);
  if (!published || !events.listens())
    return invalid_argument(
        fmt::format("auto takes the ports after those at which KV cache events are published, but the server does not "
                    "listen at a port for them: its endpoint is {}; accepted: tcp://HOST:PORT, such as tcp://*:6000",
                    events.endpoint));
  TcpAddress load{.host = published->host, .port = published->port + engines};
  const std::optional<TcpAddress> replayed = tcp_address(events.replay_endpoint);
  if (overlap(load, replayed, engines)) load.port = replayed->port + engines;
  return load;
}

Result<TcpAddress> explicit_address(std::string_view text, const KvEventsOptions& events, int engines) {
  const std::optional<TcpAddress> load = tcp_address(text);
  if (!load)
    return invalid_argument(
        fmt::format("\"{}\" is not accepted; accepted: off, auto and tcp://HOST:PORT, such as tcp://*:6000",
                    clip_text(std::string(text))));
  if (!tcp_address(events.endpoint))
    return invalid_argument(
        fmt::format("gateways learn the port from the description of KV cache events, which there is only for events "
                    "at a tcp endpoint; the endpoint is {}",
                    events.endpoint));
  for (const std::string& other : {events.endpoint, events.replay_endpoint}) {
    if (overlap(load, tcp_address(other), engines))
      return invalid_argument(fmt::format("the ports {} to {} overlap those of the KV cache events, which begin at {}",
                                          load->port, load->port + engines - 1, other));
  }
  return *load;
}

}  // namespace

Result<std::string> load_endpoint(std::string_view text, const KvEventsOptions& events, int engines) {
  if (text.empty() || text == "off") return std::string();
  if (!events.enabled)
    return invalid_argument(
        "gateways learn the port from the description of KV cache events; accepted: together with "
        "--kv-events-config '{\"publisher\": \"zmq\"}'");
  const TcpAddress load = TRY(text == "auto" ? after_events(events, engines) : explicit_address(text, events, engines));
  TRY(check_ports(load, engines));
  return fmt::format("tcp://{}:{}", load.host, load.port);
}

}  // namespace tessera
