// Catches: a file that keeps what it held before, and a write that failed and is taken for one that did not.
#include "tessera/base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace tessera {
namespace {

using ::testing::HasSubstr;

TEST(WriteFile, ReplacesWhatWasThere) {
  const std::string path = ::testing::TempDir() + "/write_file_test.txt";
  ASSERT_TRUE(write_file(path, "a longer text").ok());
  const std::string text("short\0\n", 7);
  ASSERT_TRUE(write_file(path, text).ok());
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  EXPECT_EQ(read.str(), text);
}

TEST(WriteFile, FailuresNameTheFile) {
  const std::string nowhere = ::testing::TempDir() + "/no/such/folder/file";
  EXPECT_THAT(write_file(nowhere, "x").message(), HasSubstr(nowhere));
  if (std::ifstream("/dev/full").good()) {
    EXPECT_EQ(write_file("/dev/full", "x").code(), StatusCode::kDataLoss);
  } else {
    GTEST_SKIP() << "there is no /dev/full";
  }
}

}  // namespace
}  // namespace tessera
