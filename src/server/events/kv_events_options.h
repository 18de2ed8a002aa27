// The options for publishing KV cache events. They are a JSON object in the form that vLLM and SGLang accept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

struct KvEventsOptions {
  bool enabled = false;
  std::string endpoint = "tcp://*:5557";  // for the PUB socket: tcp://HOST:PORT or ipc://PATH
  std::optional<bool> bind{};             // whether the PUB socket listens at the endpoint; unset: see listens()
  std::string replay_endpoint{};          // where the ROUTER socket listens; "": nothing is replayed
  std::string topic{};
  std::int64_t buffer_steps = 10'000;     // maximum number of batches that can be replayed
  std::int64_t hwm = 100'000;             // maximum number of batches that ZMQ keeps for a slow subscriber
  std::int64_t max_queue_size = 100'000;  // maximum number of batches that wait for the publisher's thread
  // The endpoint at which the first engine's load is also published (see load_endpoint()). If it is "", loads are not
  // published.
  std::string load_endpoint{};

  // Returns whether the PUB socket listens at its endpoint. If `bind` is set, its value decides. Otherwise the socket
  // listens if the endpoint is a wildcard address (*, 0.0.0.0 or [::]) or a local socket. A socket that does not listen
  // connects to the endpoint, where a subscriber listens.
  bool listens() const;
};

// Reads the options. Errors name the key, its value and what is accepted.
Result<KvEventsOptions> parse_kv_events_config(std::string_view text);

struct TcpAddress {
  std::string host;  // IPv6 addresses are in brackets
  int port = 0;
};
// Returns the address of an endpoint tcp://HOST:PORT, or nothing for other texts.
std::optional<TcpAddress> tcp_address(std::string_view endpoint);

// Returns the endpoint of the engine `rank`: tcp://HOST:(PORT + rank) or ipc://PATH_dp<rank>. Engine 0 has
// `endpoint` unchanged.
std::string endpoint_of(const std::string& endpoint, int rank);

// Checks that the ports of all engines are valid: the port of `first`, and the `engines` - 1 ports after it. Returns ok
// if `first` is unset, because the endpoint then needs no ports. Errors name the needed ports. `engines` is at least 1.
Status check_ports(const std::optional<TcpAddress>& first, int engines);

}  // namespace tessera
