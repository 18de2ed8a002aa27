// Threads for work that would block the I/O thread: parsing bodies, rendering templates, tokenising, compiling
// grammars, building large answers. There are a few, so that one slow request does not delay the others; tasks begin in
// the order of their posts.
//
// Threads: post() from any thread.
#pragma once

#include <functional>
#include <memory>

namespace tessera {

class TextThread {
 public:
  // A large body or a slow grammar takes one of them, and others go on.
  static constexpr int kThreads = 4;
  explicit TextThread(int threads = kThreads);
  // Ends with the tasks at hand; those that wait are dropped.
  ~TextThread();

  void post(std::function<void()> task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
