// A libnccl.so.2 that moves no data. It records the calls, and behaves as a test asks it to. Its ranks are threads of
// the test's process. The test reaches it through the symbol kFakeNccl of the library that it names.
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
  // The mutex guards all members below.
  int version = 22809;
  std::map<int, int> init_errors{};   // by rank: the ncclResult_t that ncclCommInitRank returns
  bool init_hangs = false;            // ncclCommInitRank waits until it is false again
  std::set<int> reduce_hangs{};       // ranks with an ncclAllReduce that only their ncclCommAbort ends
  std::map<int, int> async_errors{};  // by rank: what ncclCommGetAsyncError reports
  std::vector<std::string> calls{};   // "init 1 of 2 id 7", "all_reduce 1: 16 of type 9", "abort 1", …
  int ids = 6;                        // the last id that was given out; the first is 7
};

inline constexpr const char* kFakeNccl = "fake_nccl";  // extern "C" FakeNccl& fake_nccl()

}  // namespace tessera::testing
