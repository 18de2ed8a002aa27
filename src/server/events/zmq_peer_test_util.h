// A ZeroMQ socket of a subscriber, for tests.
#pragma once

#include <gtest/gtest.h>

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
      std::array<char, 4096> frame{};
      const int size = loaded_zmq().recv(socket_, frame.data(), frame.size(), 0);
      if (size < 0) return {};
      frames.emplace_back(frame.data(), static_cast<std::size_t>(size));
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
