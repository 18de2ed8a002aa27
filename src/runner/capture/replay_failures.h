// Counts consecutive failed launches of each graph. A graph is dropped after three failures, because a single failure
// may be due to a temporary lack of memory.
//
// Threads: the runner's thread.
#pragma once

#include <map>

namespace tessera {

template <class Key>
class ReplayFailures {
 public:
  // Records a failure. Returns whether the graph must be dropped now. If so, the count starts again at 0.
  bool add(const Key& key) {
    if (++failures_[key] < kMostFailures) return false;
    failures_.erase(key);
    return true;
  }
  // Records a successful launch.
  void forget(const Key& key) {
    if (!failures_.empty()) failures_.erase(key);
  }

 private:
  static constexpr int kMostFailures = 3;
  std::map<Key, int> failures_;
};

}  // namespace tessera
