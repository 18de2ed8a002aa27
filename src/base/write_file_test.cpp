// Catches: a file that keeps old content; a failed write that is reported as success; a replacement that readers can
// see half done; a replacement that leaves temporary files behind.
#include "tessera/base/write_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Creates an empty folder for the test.
std::filesystem::path empty_folder(const std::string& name) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder;
}

std::string content_of(const std::filesystem::path& path) {
  std::stringstream read;
  read << std::ifstream(path).rdbuf();
  return read.str();
}

std::ptrdiff_t entries_of(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
}

TEST(WriteFile, ReplacesTheOldContent) {
  const std::string path = ::testing::TempDir() + "/write_file_test.txt";
  ASSERT_TRUE(write_file(path, "a longer text").ok());
  const std::string text("short\0\n", 7);
  ASSERT_TRUE(write_file(path, text).ok());
  EXPECT_EQ(content_of(path), text);
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

TEST(ReplaceFile, ReadersOfTheOldFileKeepIt) {
  const std::filesystem::path folder = empty_folder("replace_file");
  const std::filesystem::path path = folder / "entry.json";
  ASSERT_TRUE(replace_file(path, "old").ok());
  std::ifstream reader(path);
  ASSERT_TRUE(replace_file(path, "new").ok());
  std::string seen;
  reader >> seen;
  EXPECT_EQ(seen, "old");
  EXPECT_EQ(content_of(path), "new");
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(ReplaceFile, AFailureLeavesNothingBehind) {
  const std::filesystem::path folder = empty_folder("replace_file_failure");
  const std::filesystem::path path = folder / "entry.json";
  std::filesystem::create_directories(path / "in the way");
  EXPECT_THAT(replace_file(path, "new").message(), HasSubstr(path.string()));
  EXPECT_TRUE(std::filesystem::is_directory(path / "in the way"));
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(ReplaceLink, PointsAtTheNewTarget) {
  const std::filesystem::path folder = empty_folder("replace_link");
  ASSERT_TRUE(replace_link(folder / "link", "first").ok());
  ASSERT_TRUE(replace_link(folder / "link", "second").ok());
  EXPECT_EQ(std::filesystem::read_symlink(folder / "link"), "second");
  EXPECT_EQ(entries_of(folder), 1);
}

}  // namespace
}  // namespace tessera
