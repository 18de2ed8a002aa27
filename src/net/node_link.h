// A connection to another node. Any thread may send frames. Received frames are handled on the link's own thread.
//
// The constructor takes a time limit, `silence`. An end that has sent no frame for a second, or for a quarter of
// `silence` if that is less, sends a heartbeat (FrameKind::kAlive). A node is lost if it closed or broke the
// connection, or sent nothing for the time `silence`. The link then calls its callback TakeEnd at once. A send fails if
// the other end accepts no bytes for the time `silence`.
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
  // Takes a frame, and may swap its payload for another buffer. Must return soon. An error ends the link.
  using TakeFrame = std::function<Status(FrameKind kind, std::vector<std::byte>& payload)>;
  // Called once when the other end has ended. `why` is ok for an orderly end, else kDeviceLost with the node's name and
  // the reason. Must not throw.
  using TakeEnd = std::function<void(const Status& why)>;

  // `name` is the other node's name in errors.
  NodeLink(Socket socket, std::string name, std::chrono::milliseconds silence)
      : socket_(std::move(socket)), name_(std::move(name)), silence_(silence) {}
  // Calls end().
  ~NodeLink() { end(); }
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;

  const std::string& name() const { return name_; }
  // Starts the link's thread, which calls `take_frame` and `take_end`. Neither is called after end() has returned.
  void start(TakeFrame take_frame, TakeEnd take_end);
  // Sends a frame. Returns kDeviceLost if the other node is gone.
  Status send(FrameKind kind, FrameParts parts);
  // Leaves: tells the other end with a last frame, and makes the link's thread end soon. If `why` is an error,
  // the other end learns that this node is lost and why. Callable from any thread. Only the first call has an effect.
  void leave(const Status& why = {});
  // Leaves like leave() and waits for the thread. Must not be called on the link's thread.
  void end();

 private:
  void run();
  // Receives frames until one of the two ends has left. Returns ok if the other end left in an orderly way, or if it
  // sent no last frame within the time that this end waits after leaving.
  Status receive_all();
  void tell_end(const Status& why);
  void say_alive(NetClock::time_point now);

  Socket socket_;
  const std::string name_;
  const std::chrono::milliseconds silence_;
  TakeFrame take_frame_;
  TakeEnd take_end_;
  std::mutex sending_;
  // The time of the last send, guarded by sending_.
  NetClock::time_point last_sent_ = NetClock::now();
  std::atomic<bool> ended_ = false;  // this side has ended; written under sending_
  std::thread thread_;
};

}  // namespace tessera
