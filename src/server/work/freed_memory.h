// Returns memory to the operating system after requests have freed it.
//
// glibc keeps freed memory that lies below the last used block of a heap, and each thread has its own heap. After a few
// large request bodies, gigabytes of freed memory can thus stay in the process. malloc_trim(3) gives the pages of this
// memory back. It takes some milliseconds for each gigabyte and locks the heap that it works on, so it runs when
// requests are few and much was freed. It does not release the free end of a thread's heap. This end can reach 64 MiB,
// because glibc raises its thresholds to the size of the largest freed block. limit_free_ends() keeps the thresholds
// low.
//
// Threads: used on the I/O thread only.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/server/memory_budget.h"

namespace tessera {

// Sets glibc's thresholds for the whole process: blocks of 1 MiB or more are mapped and unmapped one by one, and a heap
// keeps at most 1 MiB free at its end. Call it before the process has threads.
void limit_free_ends();

class FreedMemory {
 public:
  // `after` runs a task on the I/O thread after the given number of seconds. `elsewhere` runs a task on another thread.
  // `budget` gives the bytes that requests hold, and outlives the object.
  FreedMemory(const MemoryBudget& budget, std::function<void(double, std::function<void()>)> after,
              std::function<void(std::function<void()>)> elsewhere);

  // Checks after one second whether to return memory, and then every second while requests hold memory.
  void request_came();

 private:
  void look();

  const MemoryBudget& budget_;
  std::function<void(double, std::function<void()>)> after_;
  std::function<void(std::function<void()>)> elsewhere_;
  bool waiting_ = false;
  std::int64_t trimmed_at_ = 0;  // total bytes that the budget's charges had freed at the time of the last trim
  int looks_ = 0;                // number of checks since the last trim that postponed a trim
};

}  // namespace tessera
