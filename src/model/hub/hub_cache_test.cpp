// Catches: a model that is not found although the hub's own tools cached it; a revision that is returned although
// another one was requested; a partial download that is accepted as a model; a ref or revision that leads out of the
// cache folder.
#include "tessera/model/hub/hub_cache.h"

#include <map>

#include "tessera/model/test_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const std::string kCachedCommit = "0123456789abcdef0123456789abcdef01234567";
const std::string kOther = "89abcdef0123456789abcdef0123456789abcdef";

// A cache with one model, as the hub's tools write it.
class Cache {
 public:
  Cache() : settings_{.cache = dir_.path()} {}
  const HubSettings& settings() const { return settings_; }
  fs::path root() const { return fs::path(dir_.path()) / "models--org--name"; }
  void ref(const std::string& revision, const std::string& content) { put(root() / "refs" / revision, content); }
  void file(const std::string& commit, const std::string& name, const std::string& content) {
    const std::string blob = std::to_string(blobs_++);
    put(root() / "blobs" / blob, content);
    link(commit, name, blob);
  }
  void link(const std::string& commit, const std::string& name, const std::string& blob) {
    fs::create_directories(root() / "snapshots" / commit);
    fs::create_symlink("../../blobs/" + blob, root() / "snapshots" / commit / name);
  }
  Result<std::string> find(const std::string& revision = "main", ModelContent content = ModelContent::kWeights) {
    return find_in_hub_cache(settings_, {.id = "org/name", .revision = revision}, content);
  }

 private:
  void put(const fs::path& path, const std::string& content) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << content;
  }
  test::ScratchDir dir_;
  HubSettings settings_;
  int blobs_ = 0;
};

TEST(HubSettings, FollowTheEnvironment) {
  const auto settings = [](std::map<std::string, std::string> environment) {
    return hub_settings_from([environment](const char* name) -> const char* {
      const auto it = environment.find(name);
      return it == environment.end() ? nullptr : it->second.c_str();
    });
  };
  EXPECT_EQ(settings({{"HOME", "/h"}}).cache, "/h/.cache/huggingface/hub");
  EXPECT_EQ(settings({{"HOME", "/h"}}).token_file, "/h/.cache/huggingface/token");
  EXPECT_EQ(settings({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}}).cache, "/x/huggingface/hub");
  EXPECT_EQ(settings({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/x"}, {"HF_HOME", "/f"}}).cache, "/f/hub");
  EXPECT_EQ(settings({{"HOME", "/h"}, {"HF_HOME", "~/f"}}).token_file, "/h/f/token");
  EXPECT_EQ(settings({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", "/c"}}).cache, "/c");
  EXPECT_EQ(settings({{"HF_HOME", "/f"}, {"HF_HUB_CACHE", ""}}).cache, "/f/hub");
  EXPECT_EQ(settings({}).cache, "");
  EXPECT_EQ(settings({}).endpoint, "https://huggingface.co");
  const HubSettings all = settings({{"HF_ENDPOINT", "http://mirror"}, {"HF_TOKEN", "t"}, {"HF_HUB_OFFLINE", "True"}});
  EXPECT_EQ(all.endpoint, "http://mirror");
  EXPECT_EQ(all.token, "t");
  EXPECT_TRUE(all.offline);
  EXPECT_FALSE(settings({{"HF_HUB_OFFLINE", "0"}}).offline);
}

TEST(HubId, AcceptsTheHubsSpelling) {
  for (const char* id : {"org/name", "gpt2", "Qwen/Qwen3-0.6B", "a_b/C.d-1"}) EXPECT_TRUE(is_hub_id(id)) << id;
  for (const char* text : {"", "/", "a/", "/a", "a/b/c", "../a", "a/..", ".a/b", "a/b.", "a--b/c", "a/-b", "a b/c",
                           "a\\b", "./a", "~/a", "a/b\n", "models/x/config.json"})
    EXPECT_FALSE(is_hub_id(text)) << text;
  EXPECT_FALSE(is_hub_id(std::string(97, 'a')));
}

TEST(HubCache, FindsBranchTagAndCommit) {
  Cache cache;
  cache.ref("main", kCachedCommit);
  cache.ref("v1", kOther + "\n");
  cache.ref("refs/pr/2", kOther);
  for (const std::string& commit : {kCachedCommit, kOther}) {
    cache.file(commit, "config.json", "{}");
    cache.file(commit, "model.safetensors", "x");
  }
  const std::string snapshots = cache.root() / "snapshots/";
  for (const auto& [revision, commit] : std::map<std::string, std::string>{{"main", kCachedCommit},
                                                                           {"v1", kOther},
                                                                           {"refs/pr/2", kOther},
                                                                           {kCachedCommit, kCachedCommit},
                                                                           {kOther, kOther}}) {
    const Result<std::string> found = cache.find(revision);
    ASSERT_TRUE(found.ok()) << found.status().message();
    EXPECT_EQ(*found, snapshots + commit) << revision;
  }
  expect_error(cache.find("v2"), StatusCode::kNotFound,
               {"no revision \"v2\" of org/name", "main, refs/pr/2, v1, " + kCachedCommit});
}

TEST(HubCache, NamesWhatItSearchedFor) {
  Cache cache;
  expect_error(cache.find(), StatusCode::kNotFound, {"no org/name", cache.root()});
  cache.ref("main", kCachedCommit);
  expect_error(cache.find("x"), StatusCode::kNotFound, {"\"x\"", "holds main"});
  expect_error(cache.find(), StatusCode::kNotFound, {kCachedCommit, "lacks config.json"});
  const HubModel model{.id = "org/name"};
  expect_error(find_in_hub_cache({}, model, ModelContent::kConfig), StatusCode::kInvalidArgument, {"HF_HOME"});
}

TEST(HubCache, NamesWhatASnapshotLacks) {
  Cache cache;
  cache.ref("main", kCachedCommit);
  cache.file(kCachedCommit, "config.json", "{}");
  EXPECT_TRUE(cache.find("main", ModelContent::kConfig).ok());
  expect_error(cache.find(), StatusCode::kNotFound, {"only a part of org/name", "lacks model.safetensors"});

  cache.file(kCachedCommit, "model.safetensors.index.json",
             R"({"weight_map": {"a": "m1.safetensors", "b": "m2.safetensors", "c": "m3.safetensors"}})");
  cache.file(kCachedCommit, "m1.safetensors", "x");
  cache.link(kCachedCommit, "m2.safetensors", "gone");
  expect_error(cache.find(), StatusCode::kNotFound, {"lacks m2.safetensors, m3.safetensors"});
  EXPECT_TRUE(cache.find("main", ModelContent::kConfig).ok());
  cache.link(kCachedCommit, "tokenizer.json", "gone");
  expect_error(cache.find("main", ModelContent::kConfig), StatusCode::kNotFound, {"lacks tokenizer.json"});

  cache.file(kOther, "config.json", "{}");
  cache.link(kOther, "model.safetensors", "gone");
  expect_error(cache.find(kOther), StatusCode::kNotFound, {"lacks model.safetensors"});
}

TEST(HubCache, AcceptsShardsWithoutIndex) {
  Cache cache;
  cache.file(kCachedCommit, "config.json", "{}");
  cache.file(kCachedCommit, "model-00001-of-00001.safetensors", "x");
  EXPECT_TRUE(cache.find(kCachedCommit).ok());
}

TEST(HubCache, RefusesPathsThatLeaveTheCache) {
  Cache cache;
  for (const char* commit : {"", "..", "../../x", "a/b"}) {
    cache.ref("main", commit);
    expect_error(cache.find(), StatusCode::kDataLoss, {"refs/main holds no commit"});
  }
  for (const char* revision : {"", "..", "../x", "/etc", "a//b", "a/", "a\\b", "a\nb"})
    expect_error(cache.find(revision), StatusCode::kInvalidArgument, {"revision"});
  expect_error(find_in_hub_cache(cache.settings(), {.id = "../x"}, ModelContent::kConfig), StatusCode::kInvalidArgument,
               {"\"../x\" is no id"});
}

}  // namespace
}  // namespace tessera
