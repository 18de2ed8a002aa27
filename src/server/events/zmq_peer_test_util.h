// For tests: the ZeroMQ socket of a subscriber, and a search for free ports.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tessera/server/events/zmq_library.h"

namespace tessera {

using ZmqFrames = std::vector<std::string>;
inline constexpr int kReceiveMs = 5000;

inline const ZmqLibrary& loaded_zmq() {
  static const ZmqLibrary library = *ZmqLibrary::open();
  return library;
}

// Returns the first of `count` free ports that follow one another. They are below 32768, where Linux's ephemeral ports
// begin by default.
inline int free_ports(int count) {
  const auto is_free = [](int port) {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool bound = bind(listening, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    close(listening);
    return bound;
  };
  int found = 0;
  // Begins at a port that depends on the process id, so that tests that run at the same time take different ports.
  for (int port = 20'000 + getpid() % 12'000; port < 32'768; ++port) {
    found = is_free(port) ? found + 1 : 0;
    if (found == count) return port - count + 1;
  }
  ADD_FAILURE() << "no " << count << " ports are free";
  return 0;
}
inline std::string local_endpoint(int port) { return fmt::format("tcp://127.0.0.1:{}", port); }

// A ZeroMQ socket of a subscriber, or of a client that requests replays.
class ZmqPeer {
 public:
  ZmqPeer(int type, const std::string& endpoint)
      : context_(loaded_zmq().ctx_new()), socket_(loaded_zmq().socket(context_, type)) {
    set(ZMQ_RCVTIMEO, kReceiveMs);
    set(ZMQ_LINGER, 0);
    if (type == ZMQ_SUB) loaded_zmq().setsockopt(socket_, ZMQ_SUBSCRIBE, "", 0);
    EXPECT_EQ(loaded_zmq().connect(socket_, endpoint.c_str()), 0);
  }
  ~ZmqPeer() {
    loaded_zmq().close(socket_);
    loaded_zmq().ctx_term(context_);
  }
  ZmqPeer(const ZmqPeer&) = delete;
  ZmqPeer& operator=(const ZmqPeer&) = delete;

  void set(int option, int value) { loaded_zmq().setsockopt(socket_, option, &value, sizeof value); }
  void send(const ZmqFrames& frames) {
    for (std::size_t i = 0; i < frames.size(); ++i)
      loaded_zmq().send(socket_, frames[i].data(), frames[i].size(), i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
  }
  // Returns the frames of the next message, or none if no message comes.
  ZmqFrames receive() {
    ZmqFrames frames;
    int more = 1;
    while (more != 0) {
      std::array<char, 1 << 16> frame{};
      const int size = loaded_zmq().recv(socket_, frame.data(), frame.size(), 0);
      if (size < 0) return {};
      EXPECT_LE(static_cast<std::size_t>(size), frame.size()) << "a frame was cut";
      frames.emplace_back(frame.data(), std::min(static_cast<std::size_t>(size), frame.size()));
      std::size_t length = sizeof more;
      loaded_zmq().getsockopt(socket_, ZMQ_RCVMORE, &more, &length);
    }
    return frames;
  }

 private:
  void* context_;
  void* socket_;
};

}  // namespace tessera
