// A libnccl.so.2 that moves no data: it records what is called, and does what a test tells it. Its ranks are threads of
// the test's process. The test reaches it by the symbol of kFakeNccl in the library that it names.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace tessera::testing {

struct FakeNccl {
  std::mutex mutex;
  std::condition_variable moved;
  // Guarded by the mutex.
  int version = 22809;
  std::map<int, int> init_errors{};   // ncclResult_t by rank, of ncclCommInitRank
  bool init_hangs = false;            // until it is false again
  std::set<int> reduce_hangs{};       // ranks whose ncclAllReduce ends by their ncclCommAbort alone
  std::map<int, int> async_errors{};  // by rank, of ncclCommGetAsyncError
  std::vector<std::string> calls{};   // "init 1 of 2 id 7", "all_reduce 1: 16 of type 9", "abort 1", …
  int ids = 6;                        // made so far
};

inline constexpr const char* kFakeNccl = "fake_nccl";  // extern "C" FakeNccl& fake_nccl()

}  // namespace tessera::testing
