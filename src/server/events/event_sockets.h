// The ZeroMQ sockets of one engine's events: a PUB socket that sends batches to all subscribers, and a ROUTER socket at
// which a subscriber asks for batches that it has missed.
//
// Threads: one thread at a time may use an object, but any thread may call wake().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/events/kv_events_options.h"

namespace tessera {

class EventSockets {
 public:
  // Opens the sockets of engine `rank`. Errors name the option's key, the endpoint and the reason, such as an address
  // in use.
  static Result<std::unique_ptr<EventSockets>> open(const KvEventsOptions& options, int rank);
  // Waits up to half a second for messages that are not sent yet.
  ~EventSockets();
  EventSockets(const EventSockets&) = delete;
  EventSockets& operator=(const EventSockets&) = delete;

  // Sends a batch to all subscribers, without waiting for them. Returns false if the batch could not be sent.
  bool publish(std::uint64_t number, std::string_view message);

  struct Request {
    std::string client{};     // the name that the ROUTER socket gives the client
    std::uint64_t first = 0;  // number of the first batch that the client wants
  };
  // Returns the next valid request of a client, if one has come.
  std::optional<Request> next_request();
  // replay() sends the client a batch. end_replay() sends the mark that no further batch follows. A message is lost if
  // the client reads too slowly.
  void replay(const Request& request, std::uint64_t number, std::string_view message);
  void end_replay(const Request& request);

  // Waits for a request or for wake().
  void wait();
  void wake();

 private:
  struct Impl;
  explicit EventSockets(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
