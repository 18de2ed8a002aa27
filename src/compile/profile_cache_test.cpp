// Catches: an entry that is accepted although one of its bytes is wrong, or although it belongs to another key; a
// reader that sees a half-written entry; an unusable folder that makes a start fail or causes a warning for every
// entry; a cache that grows without limit; and a clear_profiles() that removes files that do not belong to the cache.
#include "tessera/compile/profile_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tessera/base/testing/captured_warnings.h"
#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Hash128 key_of(int n) {
  Hasher hasher;
  hasher.add(n);
  return hasher.finish();
}

Json value_of(int n, std::size_t size = 3) {
  Json value = Json::object();
  value.set("n", n)
      .set("ms", 0.1 * n)
      .set("whole", 2.0)
      .set("text", std::string(size, static_cast<char>('a' + n % 26)));
  return value;
}

std::size_t count_of(const std::string& text, std::string_view word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

class ProfileCacheTest : public ::testing::Test {
 protected:
  std::string warnings() { return warnings_.take(); }
  ProfileCache cache(std::int64_t max_bytes = 1 << 20) { return ProfileCache({.root = root_, .max_bytes = max_bytes}); }
  fs::path folder() const { return fs::path(root_) / "profiles" / "v1"; }
  fs::path path_of(const std::string& kind, int n) const { return folder() / (kind + "-" + key_of(n).hex() + ".json"); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder()), fs::directory_iterator()));
  }
  static std::string read(const fs::path& path) { return *read_text_file(path.string()); }
  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  test::CapturedWarnings warnings_;
  test::ScratchDir scratch_;
  std::string root_ = scratch_.path();
};

TEST_F(ProfileCacheTest, KeepsValuesByKindAndKey) {
  ProfileCache first = cache();
  EXPECT_EQ(first.load("costs", key_of(1)), std::nullopt);
  first.save("costs", key_of(1), value_of(1));
  first.save("costs", key_of(2), value_of(2));
  first.save("matmul", key_of(1), value_of(3));
  first.save("costs", key_of(2), value_of(4));
  ProfileCache second = cache();
  EXPECT_EQ(second.load("costs", key_of(1)), value_of(1));
  EXPECT_EQ(second.load("costs", key_of(2)), value_of(4));
  EXPECT_EQ(second.load("matmul", key_of(1)), value_of(3));
  EXPECT_EQ(second.load("matmul", key_of(2)), std::nullopt);
  EXPECT_EQ(second.hits(), 3);
  EXPECT_EQ(files(), 3U);
  EXPECT_EQ(warnings(), "");
}

TEST_F(ProfileCacheTest, WithoutAFolderNothingIsKept) {
  ProfileCache none({});
  none.save("costs", key_of(1), value_of(1));
  EXPECT_EQ(none.load("costs", key_of(1)), std::nullopt);
  EXPECT_EQ(warnings(), "");
}

TEST_F(ProfileCacheTest, EveryChangedByteIsSeen) {
  cache().save("costs", key_of(1), value_of(1));
  const std::string whole = read(path_of("costs", 1));
  for (std::size_t i = 0; i + 1 < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    write(path_of("costs", 1), changed);
    EXPECT_EQ(cache().load("costs", key_of(1)), std::nullopt) << i << ": " << changed;
  }
  for (std::size_t size = 0; size + 1 < whole.size(); ++size) {
    write(path_of("costs", 1), whole.substr(0, size));
    EXPECT_EQ(cache().load("costs", key_of(1)), std::nullopt) << size;
  }
  write(path_of("costs", 1), whole);
  EXPECT_EQ(cache().load("costs", key_of(1)), value_of(1));
}

TEST_F(ProfileCacheTest, ForeignEntriesAreIgnoredWithOneWarningAndReplaced) {
  ProfileCache writer = cache();
  for (int n = 0; n < 4; ++n) writer.save("costs", key_of(n), value_of(n));
  // Now the file of key 1 contains the entry of key 0.
  fs::copy_file(path_of("costs", 0), path_of("costs", 1), fs::copy_options::overwrite_existing);
  // Now a file of the kind "other" contains an entry of the kind "costs".
  fs::copy_file(path_of("costs", 0), path_of("other", 0));
  std::string old = read(path_of("costs", 2));
  const std::string version = "\"tessera_profile\": 1";
  ASSERT_THAT(old, HasSubstr(version));
  write(path_of("costs", 2), old.replace(old.find(version), version.size(), "\"tessera_profile\": 0"));
  fs::remove(path_of("costs", 3));
  fs::create_directory(path_of("costs", 3));
  write(path_of("costs", 4), std::string(5 << 20, ' '));
  ProfileCache reader = cache();
  for (int n = 1; n <= 4; ++n) EXPECT_EQ(reader.load("costs", key_of(n)), std::nullopt) << n;
  EXPECT_EQ(reader.load("other", key_of(0)), std::nullopt);
  const std::string said = warnings();
  EXPECT_EQ(count_of(said, "an entry of the profile cache is ignored"), 1U) << said;
  EXPECT_THAT(said, HasSubstr(path_of("costs", 1).string()));
  for (const int n : {1, 2, 4}) {
    reader.save("costs", key_of(n), value_of(n + 10));
    EXPECT_EQ(reader.load("costs", key_of(n)), value_of(n + 10));
  }
}

TEST_F(ProfileCacheTest, AnUnusableFolderCausesOneWarning) {
  write(fs::path(root_) / "file", "");
  for (const std::string& root : {root_ + "/file", root_ + "/file/below", std::string("/proc/no/such")}) {
    ProfileCache blocked({.root = root});
    for (int n = 0; n < 3; ++n) {
      blocked.save("costs", key_of(n), value_of(n));
      EXPECT_EQ(blocked.load("costs", key_of(n)), std::nullopt);
    }
    const std::string said = warnings();
    EXPECT_EQ(count_of(said, "the next start repeats them"), 1U) << said;
    EXPECT_EQ(count_of(said, "\n"), 1U) << said;
    EXPECT_THAT(said, HasSubstr(root));
  }
}

TEST_F(ProfileCacheTest, AValueTooLargeToKeepCausesOneWarning) {
  ProfileCache small = cache(1000);
  small.save("costs", key_of(1), value_of(1));
  small.save("costs", key_of(1), value_of(2, 5000));
  EXPECT_THAT(warnings(), HasSubstr("5"));
  EXPECT_EQ(small.load("costs", key_of(1)), value_of(1));
}

// A limit on the size of files stops a write in the middle, like a full disk.
TEST_F(ProfileCacheTest, AFailedWriteLeavesOnlyTheOldEntry) {
  cache().save("costs", key_of(1), value_of(1));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ProfileCache full = cache();
  rlimit little = before;
  little.rlim_cur = 400;  // in bytes; enough for the warning, which is written to a file too
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  full.save("costs", key_of(1), value_of(2, 500));
  full.save("costs", key_of(2), value_of(2, 500));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, previous);
  const std::string said = warnings();
  EXPECT_EQ(count_of(said, "cannot write"), 1U) << said;
  EXPECT_EQ(full.load("costs", key_of(1)), value_of(1));
  EXPECT_EQ(files(), 1U);
}

TEST_F(ProfileCacheTest, FullDisk) {
  if (mount("tmpfs", root_.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "no file system can be mounted here: " << std::strerror(errno);
  {
    ProfileCache full = cache();
    for (int n = 0; n < 40; ++n) full.save("costs", key_of(n), value_of(n, 8000));
    EXPECT_EQ(full.load("costs", key_of(0)), value_of(0, 8000));
    const std::string said = warnings();
    EXPECT_EQ(count_of(said, "No space left on device"), 1U) << said;
    EXPECT_EQ(list_profiles(root_)->count("unfinished"), 0U);
  }
  ASSERT_EQ(umount(root_.c_str()), 0);
}

TEST_F(ProfileCacheTest, TheOldestOfTooManyEntriesAreDeleted) {
  ProfileCache small = cache(2000);
  for (int n = 0; n < 3; ++n) {
    small.save("costs", key_of(n), value_of(n, 400));
    fs::last_write_time(path_of("costs", n), fs::file_time_type::clock::now() - std::chrono::hours(10 - n));
  }
  write(folder() / "notes.txt", std::string(5000, 'x'));
  const std::string abandoned = path_of("costs", 9).string() + ".1-0.new";
  write(abandoned, "{");
  fs::last_write_time(abandoned, fs::file_time_type::clock::now() - std::chrono::hours(2));
  write(path_of("costs", 8).string() + ".2-0.new", "{");  // a file that another process is still writing
  small.save("costs", key_of(3), value_of(3, 400));
  EXPECT_EQ(small.load("costs", key_of(0)), std::nullopt);
  for (int n = 1; n <= 3; ++n) EXPECT_EQ(small.load("costs", key_of(n)), value_of(n, 400)) << n;
  EXPECT_TRUE(fs::exists(folder() / "notes.txt"));
  EXPECT_FALSE(fs::exists(abandoned));
  EXPECT_TRUE(fs::exists(path_of("costs", 8).string() + ".2-0.new"));
}

TEST_F(ProfileCacheTest, ListAndClearTouchOnlyCacheFiles) {
  EXPECT_THAT(*list_profiles(root_), IsEmpty());
  EXPECT_THAT(*clear_profiles(root_), IsEmpty());
  ProfileCache some = cache();
  for (int n = 0; n < 3; ++n) some.save("costs", key_of(n), value_of(n));
  some.save("matmul", key_of(1), value_of(1));
  write(path_of("costs", 5).string() + ".77-0.new", "{");
  const fs::path old = fs::path(root_) / "profiles" / "v0" / path_of("costs", 7).filename();
  write(old, "{}");
  const std::vector<fs::path> others = {folder() / "costs.json", folder() / ("costs-" + std::string(32, 'g') + ".json"),
                                        fs::path(root_) / "other" / path_of("costs", 1).filename(),
                                        fs::path(root_) / "profiles" / "vx" / path_of("costs", 1).filename()};
  for (const fs::path& other : others) write(other, "mine");

  const auto listed = *list_profiles(root_);
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_EQ(listed.at("costs").entries, 4);
  EXPECT_EQ(listed.at("matmul").bytes, static_cast<std::int64_t>(fs::file_size(path_of("matmul", 1))));
  EXPECT_EQ(listed.at("unfinished").entries, 1);
  const auto cleared = *clear_profiles(root_);
  EXPECT_EQ(cleared.at("costs").entries, 4);
  EXPECT_EQ(cleared.at("unfinished").bytes, 1);
  EXPECT_THAT(*list_profiles(root_), IsEmpty());
  for (const fs::path& other : others) EXPECT_EQ(read(other), "mine") << other;
  EXPECT_FALSE(fs::exists(old.parent_path()));
  some.save("costs", key_of(1), value_of(1));
  EXPECT_EQ(some.load("costs", key_of(1)), value_of(1));
  EXPECT_EQ(warnings(), "");
}

TEST_F(ProfileCacheTest, AFolderThatCannotBeReadIsAnError) {
  write(fs::path(root_) / "profiles", "");
  EXPECT_THAT(list_profiles(root_).status().message(), HasSubstr("cannot read the folder " + root_));
  EXPECT_FALSE(clear_profiles(root_).ok());
}

// Four processes replace the same entries, while four others read these entries and one more clears the cache.
TEST_F(ProfileCacheTest, ProcessesAtOnce) {
  constexpr int kEntries = 3;
  constexpr int kWriters = 4;
  constexpr int kReaders = 4;
  const auto in_child = [](const auto& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    return child;
  };
  // The length of a value depends on the round and the writer, so that a value mixed from two writes would be noticed.
  const auto value = [](int entry, int round) {
    return value_of(entry, static_cast<std::size_t>(1 + round * 997 % 9001));
  };
  std::vector<pid_t> children;
  for (int w = 0; w < kWriters; ++w) {
    children.push_back(in_child([&] {
      ProfileCache writer = cache();
      for (int round = 0; round < 60; ++round)
        for (int n = 0; n < kEntries; ++n) writer.save("costs", key_of(n), value(n, round + w));
      return true;
    }));
  }
  for (int r = 0; r < kReaders; ++r) {
    children.push_back(in_child([&] {
      for (int round = 0; round < 400; ++round) {
        for (int n = 0; n < kEntries; ++n) {
          ProfileCache reader = cache();  // a new object, because each object warns only once
          const std::optional<Json> read_back = reader.load("costs", key_of(n));
          if (read_back && read_back->find("n")->as_int() != n) return false;
        }
      }
      return true;
    }));
  }
  children.push_back(in_child([&] {
    for (int round = 0; round < 20; ++round, usleep(2000))
      if (!clear_profiles(root_).ok()) return false;
    return true;
  }));
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(count_of(warnings(), "is ignored"), 0U);
  cache().save("costs", key_of(1), value(1, 5));
  EXPECT_EQ(cache().load("costs", key_of(1)), value(1, 5));
  EXPECT_EQ(list_profiles(root_)->count("unfinished"), 0U);
}

}  // namespace
}  // namespace tessera
