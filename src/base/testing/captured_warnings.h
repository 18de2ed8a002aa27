// Captures what is logged during a test, for tests of warnings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tessera/base/log.h"

namespace tessera::test {

// Captures the standard error as long as the object lives. Only warnings and errors are logged.
class CapturedWarnings {
 public:
  CapturedWarnings() {
    EXPECT_TRUE(set_log_level("warn").ok());
    ::testing::internal::CaptureStderr();
  }
  ~CapturedWarnings() { ::testing::internal::GetCapturedStderr(); }
  CapturedWarnings(const CapturedWarnings&) = delete;
  CapturedWarnings& operator=(const CapturedWarnings&) = delete;

  // Returns what was logged since the last call, or since the start.
  std::string take() {
    std::string text = ::testing::internal::GetCapturedStderr();
    ::testing::internal::CaptureStderr();
    return text;
  }
};

}  // namespace tessera::test
