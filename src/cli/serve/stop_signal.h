// Turns signals into calls. A server can then finish its work, and a chat can stop only the current answer. SIGHUP can
// make a server reopen its files.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class StopSignal {
 public:
  // Starts a thread that calls `on_signal(n)` whenever one of `signals` arrives. n is the number of these signals that
  // have arrived until now, including this one. The thread ends when the object is destroyed. After that the signals
  // have their previous effect. If `on_hangup` is given, SIGHUP calls it on the same thread. A process may have only
  // one such object at a time.
  static Result<std::unique_ptr<StopSignal>> watch(const std::vector<int>& signals,
                                                   std::function<void(int count)> on_signal,
                                                   std::function<void()> on_hangup = {});
  ~StopSignal();

 private:
  struct Impl;
  explicit StopSignal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
