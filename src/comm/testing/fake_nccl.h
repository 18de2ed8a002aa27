// A fake libnccl.so.2 that moves no data. It keeps a list of its calls and behaves as a test configures it. Its ranks
// are threads of the test's process. The library file exports a function named kFakeNccl, which returns the FakeNccl
// object to the test.
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
  std::map<int, int> init_errors{};   // for each rank, the ncclResult_t of ncclCommInitRank
  bool init_hangs = false;            // ncclCommInitRank hangs while this is true
  std::set<int> reduce_hangs{};       // ranks whose ncclAllReduce hangs until ncclCommAbort is called for them
  std::map<int, int> async_errors{};  // for each rank, the result of ncclCommGetAsyncError
  std::vector<std::string> calls{};   // for example "init 1 of 2 id 7", "all_reduce 1: 16 of type 9" or "abort 1"
  int ids = 6;                        // number of the last id; the initial value is arbitrary
};

inline constexpr const char* kFakeNccl = "fake_nccl";  // name of extern "C" FakeNccl& fake_nccl()

}  // namespace tessera::testing
