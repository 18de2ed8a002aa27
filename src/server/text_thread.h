// Threads for what would hold the I/O thread up: parsing bodies, rendering templates, tokenising, compiling grammars,
// building large answers. A few, so that one slow request does not hold the others up; tasks begin in the order they
// came.
//
// Threads: post() from any thread.
#pragma once

#include <functional>
#include <memory>

namespace tessera {

class TextThread {
 public:
  TextThread();
  // Ends with the tasks at hand; those that wait are dropped.
  ~TextThread();

  void post(std::function<void()> task);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
