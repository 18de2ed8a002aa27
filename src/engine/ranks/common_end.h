// Coordinates the end of servers on several nodes that need each other's ranks for their forwards. When one is told to
// stop, all stop, and none leaves while another has requests.
//
// Threads: any.
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
  // Call before `nodes` are started; `nodes` must end before this object does.
  explicit CommonEnd(NodeGroup& nodes);
  CommonEnd(const CommonEnd&) = delete;
  CommonEnd& operator=(const CommonEnd&) = delete;

  // Sets a function that is called once, with the number of the node that ends, when that node has told its end. The
  // call comes on another thread, or from this function if the end was told before. `stop` must not call functions of
  // this class. An empty function removes it.
  void when_told(std::function<void(int node)> stop);
  // Tells the other nodes that this node's server ends and theirs must end too.
  void tell();
  // Called when this node has no requests left. Returns when no node has any, when a node is lost, after give_up(), or
  // after `limit`, and then leaves the nodes. Returns false if other nodes may still have requests, which then fail.
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
  int told_by_ = -1;                    // the first node that told its end; -1: none
  int done_ = 0;  // on node 0: number of other nodes without requests; elsewhere 1 once no node has requests
  bool given_up_ = false;
};

}  // namespace tessera
