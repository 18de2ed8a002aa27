// A connection to another node: frames out from any thread, frames in on a thread of its own.
//
// Both ends say every second that they are there. A node that closed the connection, broke it, or said nothing for
// `silence` is lost: whoever waits for it is told at once, and no send waits longer.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tessera/net/frame.h"
#include "tessera/net/socket.h"

namespace tessera {

class NodeLink {
 public:
  // Takes a frame; may swap the payload for a buffer of its own. Must return soon. An error ends the link.
  using TakeFrame = std::function<Status(FrameKind kind, std::vector<std::byte>& payload)>;
  // Once: ok where the other end ended in order, else kDeviceLost with name and reason.
  // Throws nothing.
  using TakeEnd = std::function<void(const Status& why)>;

  // `name` stands for the other node in errors.
  NodeLink(Socket socket, std::string name, std::chrono::milliseconds silence)
      : socket_(std::move(socket)), name_(std::move(name)), silence_(silence) {}
  // Ends like end().
  ~NodeLink() { end(); }
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  const std::string& name() const { return name_; }
  // Both functions are called on the link's thread, until end() has returned.
  void start(TakeFrame take_frame, TakeEnd take_end);
  // kDeviceLost where the node is gone.
  Status send(FrameKind kind, FrameParts parts);
  // Tells the other end, which is then told no more, and ends the thread soon. Where `why` is not ok the other end is
  // told that this one is lost, and why. From any thread; the first call counts.
  void leave(const Status& why = {});
  // Leaves like leave(), and waits for the thread. Not to be called on that thread.
  void end();

 private:
  void run();
  // Ok: nothing more follows.
  Status receive_all();
  void tell_end(const Status& why);
  void say_alive(NetClock::time_point now);

  Socket socket_;
  const std::string name_;
  const std::chrono::milliseconds silence_;
  TakeFrame take_frame_;
  TakeEnd take_end_;
  std::mutex sending_;
  // Guarded by sending_.
  NetClock::time_point last_sent_ = NetClock::now();
  std::atomic<bool> ended_ = false;  // from this side; written under sending_
  std::thread thread_;
};

}  // namespace tessera
