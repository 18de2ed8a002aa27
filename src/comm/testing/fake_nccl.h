// A libnccl.so.2 that moves no data: it records calls and does what a test tells it. Its ranks are threads of the
// test's process. The test reaches it through the symbol kFakeNccl of the library file.
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
  // The members below are guarded by the mutex.
  int version = 22809;
  std::map<int, int> init_errors{};   // ncclCommInitRank's ncclResult_t by rank
  bool init_hangs = false;            // ncclCommInitRank hangs until this is false
  std::set<int> reduce_hangs{};       // ranks whose ncclAllReduce hangs until their ncclCommAbort
  std::map<int, int> async_errors{};  // ncclCommGetAsyncError's result by rank
  std::vector<std::string> calls{};   // "init 1 of 2 id 7", "all_reduce 1: 16 of type 9", "abort 1", …
  int ids = 6;                        // number of ids made so far, from an offset
};

inline constexpr const char* kFakeNccl = "fake_nccl";  // name of extern "C" FakeNccl& fake_nccl()

}  // namespace tessera::testing
