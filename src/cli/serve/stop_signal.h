// Signals as calls: a program that serves ends its work instead of being cut off, one that talks stops talking.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::cli {

class StopSignal {
 public:
  // Calls `on_signal(n)` on a thread of its own for the n-th of these signals, from 1, until this is destroyed; then
  // they do what they did before. One at a time in a process.
  static Result<std::unique_ptr<StopSignal>> watch(const std::vector<int>& signals,
                                                   std::function<void(int count)> on_signal);
  ~StopSignal();

 private:
  struct Impl;
  explicit StopSignal(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::cli
