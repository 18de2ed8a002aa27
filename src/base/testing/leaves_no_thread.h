// A fixture for tests that start threads.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <thread>

namespace tessera::test {

inline std::size_t threads_of_process() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

// Returns the number of threads, once it is `enough` or 10 seconds have passed. The kernel still lists a thread for a
// moment after it was joined.
template <class Enough>
std::size_t threads_once(const Enough& enough) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::size_t count = threads_of_process();
  while (!enough(count) && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    count = threads_of_process();
  }
  return count;
}

// Fails a test that leaves a thread running.
class LeavesNoThread : public ::testing::Test {
 protected:
  void SetUp() override {
    if (threads_of_process() == after_the_last_) {
      before_ = after_the_last_;
      return;
    }
    std::size_t last = 0;
    int unchanged = 0;
    before_ = threads_once([&](std::size_t count) {
      unchanged = count == last ? unchanged + 1 : 0;
      last = count;
      return unchanged == 10;
    });
  }
  void TearDown() override {
    after_the_last_ = threads_once([this](std::size_t count) { return count == before_; });
    EXPECT_EQ(after_the_last_, before_);
  }

 private:
  static inline std::size_t after_the_last_ = 0;  // the number of threads when the last such test had ended
  std::size_t before_ = 0;
};

}  // namespace tessera::test
