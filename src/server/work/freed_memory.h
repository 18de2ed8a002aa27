// Gives memory that requests have freed back to the system.
//
// glibc keeps what is freed below the last piece of a heap that is still held, and each thread has a heap of its own:
// after a few large bodies gigabytes stay. malloc_trim(3) gives the pages back. It takes some milliseconds for each
// gigabyte, with the heap that it is at locked, so that it runs where requests are few and much has been freed. It
// leaves the free end of a thread's heap, up to 64 MiB, since glibc raises its thresholds to the largest block that was
// freed; limit_free_ends() keeps them.
//
// Threads: the I/O thread.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/server/work/memory_budget.h"

namespace tessera {

// For the whole process, before it has threads: blocks of 1 MiB or more are mapped and unmapped one by one, and a heap
// keeps at most as much at its end.
void limit_free_ends();

class FreedMemory {
 public:
  // `after` calls a task here in so many seconds, `elsewhere` runs one on another thread; `budget` says what is held
  // and outlives it.
  FreedMemory(const MemoryBudget& budget, std::function<void(double, std::function<void()>)> after,
              std::function<void(std::function<void()>)> elsewhere);

  // Looks in a second, and each second as long as requests hold anything.
  void request_came();

 private:
  void look();

  const MemoryBudget& budget_;
  std::function<void(double, std::function<void()>)> after_;
  std::function<void(std::function<void()>)> elsewhere_;
  bool waiting_ = false;
  std::int64_t trimmed_at_ = 0;  // bytes that had been freed at the last trim
  int looks_ = 0;                // since then, at which it was put off
};

}  // namespace tessera
