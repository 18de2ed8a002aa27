// Catches: an old file that is replaced although the new one is incomplete or its write failed; temporary files that
// are left behind.
#include "tessera/base/replacement_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

TEST(ReplacementFile, CommitReplacesTheOldFile) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/file";
  for (const std::string_view text : {"first", "then"}) {
    ReplacementFile file(path);
    ASSERT_TRUE(file.write(2, bytes_of(text.substr(2))).ok());
    ASSERT_TRUE(file.write(0, bytes_of(text.substr(0, 2))).ok());
    ASSERT_TRUE(file.commit().ok());
    EXPECT_EQ(*read_text_file(path), text);
  }
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(ReplacementFile, NothingIsLeftWithoutCommit) {
  const test::ScratchDir dir;
  {
    ReplacementFile file(dir.path() + "/file");
    ASSERT_TRUE(file.write(0, bytes_of("text")).ok());
  }
  EXPECT_EQ(files_in(dir.path()), 0u);
}

TEST(ReplacementFile, CommitReturnsTheFirstErrorOfWriting) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/file";
  ReplacementFile old(path);
  ASSERT_TRUE(old.write(0, bytes_of("old")).ok());
  ASSERT_TRUE(old.commit().ok());
  {
    ReplacementFile file(path);
    ASSERT_TRUE(file.write(0, bytes_of("new")).ok());
    const Status status = file.write(-1, bytes_of("more"));  // no file has negative offsets
    EXPECT_NE(status.message().find("cannot write"), std::string::npos) << status.message();
    EXPECT_EQ(file.write(3, bytes_of("more")).message(), status.message()) << "the first error is kept";
    EXPECT_EQ(file.commit().message(), status.message());
  }
  EXPECT_EQ(*read_text_file(path), "old");
  EXPECT_EQ(files_in(dir.path()), 1u);
}

TEST(ReplacementFile, MissingFolderIsAnErrorThatNamesTheFile) {
  ReplacementFile file("/nowhere/file");
  const Status status = file.write(0, bytes_of("text"));
  EXPECT_NE(status.message().find("for /nowhere/file: No such file"), std::string::npos) << status.message();
  EXPECT_EQ(file.commit().message(), status.message());
}

}  // namespace
}  // namespace tessera
