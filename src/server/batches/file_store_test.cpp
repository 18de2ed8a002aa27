// Catches: files that a client reaches although it does not own them; files that stay although they have expired or
// exceed a limit; files that a restart loses; and content that an interrupted upload leaves behind.
#include "tessera/server/batches/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/server/batches/file_folder.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class FileStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<FileStore> open(FileStore::Limits limits = {}) {
    Result<std::unique_ptr<FileStore>> store = FileStore::open(folder_.path(), limits, [this] { return now_; });
    EXPECT_TRUE(store.ok()) << store.status().message();
    return *std::move(store);
  }
  StoredFile file(std::string owner = "") const {
    return {.owner = std::move(owner), .filename = "a.jsonl", .purpose = "batch", .expires_at = now_ + 100};
  }
  static int status_of(const ApiResult<StoredFile>& result) { return result.ok() ? 200 : result.error().http_status; }

  test::ScratchDir folder_;
  std::int64_t now_ = 1000;
};

TEST_F(FileStoreTest, AFileIsThereAfterARestart) {
  std::string id;
  {
    const auto store = open();
    ApiResult<StoredFile> kept = store->put(file("me"), "content");
    ASSERT_TRUE(kept.ok());
    id = kept->id;
  }
  const auto store = open();
  ApiResult<StoredFile> found = store->find(id, "me");
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->filename, "a.jsonl");
  EXPECT_EQ(found->bytes, 7);
  EXPECT_EQ(found->created_at, 1000);
  EXPECT_EQ(*read_text_file(store->path_of(id)), "content");
}

TEST_F(FileStoreTest, AFileIsUnknownToOthers) {
  const auto store = open();
  ApiResult<StoredFile> kept = store->put(file("me"), "x");
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(status_of(store->find(kept->id, "you")), 404);
  EXPECT_FALSE(store->erase(kept->id, "you").ok());
  EXPECT_THAT(store->list("you"), IsEmpty());
  EXPECT_THAT(store->list("me"), SizeIs(1));
  EXPECT_TRUE(store->erase(kept->id, "me").ok());
  EXPECT_EQ(status_of(store->find(kept->id, "me")), 404);
  EXPECT_FALSE(std::filesystem::exists(store->path_of(kept->id)));
}

TEST_F(FileStoreTest, AFileWhoseAgeIsOverIsErased) {
  const auto store = open();
  ApiResult<StoredFile> kept = store->put(file(), "x");
  ASSERT_TRUE(kept.ok());
  now_ += 99;
  EXPECT_EQ(status_of(store->find(kept->id, "")), 200);
  now_ += 1;
  EXPECT_EQ(status_of(store->find(kept->id, "")), 404);
  EXPECT_FALSE(std::filesystem::exists(store->path_of(kept->id)));
}

TEST_F(FileStoreTest, LimitsAreNamedAndOldFilesMakeRoom) {
  const auto store = open({.bytes = 10, .number = 2});
  ApiResult<StoredFile> large = store->put(file(), "12345678901");
  EXPECT_EQ(status_of(large), 413);
  EXPECT_THAT(large.error().message, HasSubstr("11 bytes; all files together may have 10"));
  ASSERT_TRUE(store->put(file(), "123456").ok());
  ApiResult<StoredFile> full = store->put(file(), "12345");
  EXPECT_EQ(status_of(full), 503);
  EXPECT_EQ(full.error().code, "file_storage_full");
  ASSERT_TRUE(store->put(file(), "1").ok());
  ApiResult<StoredFile> many = store->put(file(), "1");
  EXPECT_THAT(many.error().message, HasSubstr("2 files, which is the most"));
  now_ += 100;
  EXPECT_TRUE(store->put(file(), "1234567890").ok()) << "the old ones are erased";
}

TEST_F(FileStoreTest, RestsOfAKilledProcessAreRemoved) {
  const std::string rest = folder_.write("file-0123", "half");
  folder_.write("file-4567.json", "{\"created_at\": 1, \"expires_at\": 9999}");
  const std::string other = folder_.write("notes.txt", "mine");
  const auto store = open({.bytes = 4});
  EXPECT_FALSE(std::filesystem::exists(rest));
  EXPECT_TRUE(std::filesystem::exists(other)) << "what is none of the store's stays";
  EXPECT_EQ(status_of(store->find("file-4567", "")), 404) << "a description without content";
  EXPECT_TRUE(store->put(file(), "1234").ok()) << "it takes no room";
}

TEST(FileFolderTest, TwoServersCannotShareAFolder) {
  const test::ScratchDir scratch;
  const std::string path = scratch.path() + "/new";
  {
    const Result<FileFolder> first = FileFolder::open(path);
    ASSERT_TRUE(first.ok()) << first.status().message();
    const Result<FileFolder> second = FileFolder::open(path);
    ASSERT_FALSE(second.ok());
    EXPECT_THAT(second.status().message(), HasSubstr(path + " is in use by another server"));
  }
  EXPECT_TRUE(FileFolder::open(path).ok());
}

}  // namespace
}  // namespace tessera
