// Servers on several nodes that need each other's ranks for their forwards, and so end together: where one is told to
// stop all stop, and none leaves while another has requests.
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
  // Before `nodes` are started, which end before this does.
  explicit CommonEnd(NodeGroup& nodes);
  CommonEnd(const CommonEnd&) = delete;
  CommonEnd& operator=(const CommonEnd&) = delete;

  // `stop` is called once, with the number of a node that ends, when that has told it: on another thread, or here where
  // it has. It calls nothing of this. None takes it back.
  void when_told(std::function<void(int node)> stop);
  // This node's server ends, and those of the others shall.
  void tell();
  // This node has no requests any more. Returns when no node has any, when one is lost, after give_up(), or after
  // `limit`, and leaves the nodes. False: others may have requests, which fail.
  bool leave_together(std::chrono::milliseconds limit);
  void give_up();
  // This node fails: the others are told why.
  void leave(const Status& why) { nodes_.leave(why); }

 private:
  void take_stop(int node);

  NodeGroup& nodes_;
  std::mutex mutex_;
  std::condition_variable moved_;
  // Guarded by the mutex.
  std::function<void(int node)> stop_;  // until it is called
  int told_by_ = -1;                    // the first node that told it; -1: none
  int done_ = 0;                        // on node 0 the others that have no requests any more; elsewhere 1: no node has
  bool given_up_ = false;
};

}  // namespace tessera
