// Catches: a crash on a file that shrinks while it is mapped; lost bytes that are not reported; a signal handler that
// handles faults in mappings of other code.
#include "tessera/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

class MappedFileTest : public ::testing::Test {
 protected:
  const test::ScratchDir folder_;
  const std::string path_ = folder_.write("mapped", std::string(kBytes, 'x'));
};

std::size_t count(const MappedFile& file, std::byte value) {
  return static_cast<std::size_t>(std::ranges::count(file.bytes(), value));
}

TEST_F(MappedFileTest, HasTheContentOfTheFile) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->bytes().size(), kBytes);
  EXPECT_EQ(count(**file, std::byte{'x'}), kBytes);
  EXPECT_TRUE((*file)->check_whole().ok());
}

TEST_F(MappedFileTest, ShrunkFileIsAnErrorAndNoSignal) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, kBytes / 2);
  EXPECT_EQ(count(**file, std::byte{'x'}), kBytes / 2);
  EXPECT_EQ(count(**file, std::byte{0}), kBytes / 2);
  const Status status = (*file)->check_whole();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), ::testing::HasSubstr(path_));
}

TEST_F(MappedFileTest, ManyThreadsReadAShrunkFile) {
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path_, 0);
  std::vector<std::thread> threads;
  std::vector<std::size_t> zeros(8);
  for (std::size_t& of_thread : zeros) threads.emplace_back([&] { of_thread = count(**file, std::byte{0}); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(zeros, ::testing::Each(kBytes));
  EXPECT_FALSE((*file)->check_whole().ok());
}

TEST_F(MappedFileTest, NewMappingIsWholeAfterALostOne) {
  {
    const auto lost = MappedFile::open(path_);
    ASSERT_TRUE(lost.ok());
    std::filesystem::resize_file(path_, 0);
    EXPECT_EQ(count(**lost, std::byte{'x'}), 0U);
  }
  std::ofstream(path_, std::ios::binary) << "abc";
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->bytes().size(), 3U);
  EXPECT_TRUE((*file)->check_whole().ok());
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  std::filesystem::resize_file(path_, 0);
  const auto file = MappedFile::open(path_);
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE((*file)->bytes().empty());
  EXPECT_TRUE((*file)->check_whole().ok());
}

TEST_F(MappedFileTest, MissingFilesAndFoldersAreErrors) {
  EXPECT_EQ(MappedFile::open(path_ + "-missing").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MappedFile::open("/").status().code(), StatusCode::kDataLoss);
}

TEST_F(MappedFileTest, OtherMappingsStillRaiseTheSignal) {
  ASSERT_TRUE(MappedFile::open(path_).ok());
  const auto touch_lost_page = [this] {
    std::FILE* file = std::fopen(path_.c_str(), "r+b");
    void* page = ::mmap(nullptr, kBytes, PROT_READ, MAP_PRIVATE, ::fileno(file), 0);
    std::filesystem::resize_file(path_, 0);
    std::_Exit(*static_cast<volatile char*>(page));
  };
  EXPECT_DEATH(touch_lost_page(), "");
}

}  // namespace
}  // namespace tessera
