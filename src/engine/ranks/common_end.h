// Coordinates the shutdown of servers on several nodes whose forwards need each other's ranks. If one server is told to
// stop, all stop. No server leaves while another one still has requests.
//
// Any thread may call all functions.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "tessera/base/status.h"
#include "tessera/net/node_group.h"

namespace tessera {

class CommonEnd {
 public:
  // Call it before nodes.start(). `nodes` must end before this object is destroyed.
  explicit CommonEnd(NodeGroup& nodes);
  CommonEnd(const CommonEnd&) = delete;
  CommonEnd& operator=(const CommonEnd&) = delete;

  // Sets the function `stop`. It is called once, with the number of the first node that announces its end. The call
  // comes on another thread, or from within when_told() if a node has already announced its end. `stop` must not call
  // functions of this class. An empty `stop` removes the function that was set.
  void when_told(std::function<void(int node)> stop);
  // Tells the other nodes that this node's server ends, so that their servers end too.
  void tell();
  // Leaves the nodes. Call it when this node has no requests left. First waits until no node has requests, a node is
  // lost, give_up() is called, or `limit` has passed. Returns false if other nodes may still have requests, which then
  // fail.
  bool leave_together(std::chrono::milliseconds limit);
  void give_up();
  // Reports to the other nodes that this node fails, and why.
  void leave(const Status& why) { nodes_.leave(why); }

 private:
  void take_stop(int node);

  NodeGroup& nodes_;
  std::mutex mutex_;
  std::condition_variable moved_;
  // Guarded by the mutex.
  std::function<void(int node)> stop_;  // empty once it was called
  int told_by_ = -1;                    // the first node that announced its end; -1: none
  int done_ = 0;  // on node 0: number of other nodes without requests; elsewhere 1 once no node has requests
  bool given_up_ = false;
};

}  // namespace tessera
