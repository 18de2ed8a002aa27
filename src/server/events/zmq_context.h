// A ZeroMQ context and its sockets.
//
// Threads: one thread at a time.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/server/events/zmq_library.h"

namespace tessera {

// Returns a message's number as 8 bytes, the most significant byte first.
std::string number_bytes(std::uint64_t number);

class ZmqContext {
 public:
  // Returns an error if the library is missing.
  static Result<std::unique_ptr<ZmqContext>> create();
  // Closes the sockets. Afterwards their addresses are free again.
  ~ZmqContext();
  ZmqContext(const ZmqContext&) = delete;
  ZmqContext& operator=(const ZmqContext&) = delete;

  struct SocketOptions {
    int type = 0;              // ZMQ_PUB or another of ZeroMQ's types
    bool listens = false;      // listens at the endpoint; otherwise connects to it
    std::int64_t waiting = 0;  // maximum number of messages that wait for each peer
    int linger_ms = 0;         // how long the destructor waits for messages that are not sent yet
  };
  // Opens a socket, which belongs to the context. Errors name the endpoint and the reason, such as an address in use.
  Result<void*> open(const std::string& endpoint, SocketOptions options);
  // Sends a message of several frames without waiting. Returns false if the message could not be sent.
  bool send(void* socket, std::initializer_list<std::string_view> frames) const;

  const ZmqLibrary& library() const { return zmq_; }

  static constexpr std::int64_t kLargestRequest = 1024;  // in bytes; a longer message ends the connection of its sender

 private:
  explicit ZmqContext(const ZmqLibrary& zmq) : zmq_(zmq) {}
  Status failed(std::string_view what) const;
  Status set(void* socket, int option, int value) const;

  const ZmqLibrary zmq_;
  void* context_ = nullptr;
  std::vector<void*> sockets_;
};

}  // namespace tessera
