// Catches: a download that is wrong and taken for right (other bytes, fewer, more, another range than asked for), one
// that starts over where it could go on, a token that reaches a stranger, a cache left in a state that the hub's own
// tools would not leave, and two processes that write one file.
#include "tessera/model/hub_download.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "tessera/base/json.h"
#include "tessera/model/hub_digest.h"
#include "tessera/model/test_http_server.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::HttpServer;
using test::ServedReply;
using test::ServedRequest;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string pattern(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  return bytes;
}

// A hub with one model, and a cache to fetch it to. answer_first() changes what it says.
class HubTest : public ::testing::Test {
 protected:
  HubTest() {
    ::setenv("no_proxy", "*", 1);
    files_ = {
        {"config.json", "{\"a\": 1}"}, {"tokenizer.json", "{}"}, {"README.md", "text"}, {"pytorch_model.bin", "b"}};
    add_weights("model.safetensors", pattern(300'000));
  }

  void add_weights(const std::string& name, const std::string& content) {
    files_[name] = content;
    lfs_.push_back(name);
  }
  bool is_lfs(const std::string& name) const { return std::find(lfs_.begin(), lfs_.end(), name) != lfs_.end(); }
  std::string digest(const std::string& name) const {
    const std::string& content = files_.at(name);
    Digest digest = is_lfs(name) ? *Digest::sha256() : *Digest::git_blob(static_cast<std::int64_t>(content.size()));
    digest.add(content);
    return *digest.finish();
  }

  std::string listing() const {
    Json siblings = Json::array();
    for (const auto& [name, content] : files_) {
      Json file = Json::object();
      file.set("rfilename", name).set("size", content.size()).set("blobId", std::string(40, '0'));
      if (is_lfs(name)) {
        Json lfs = Json::object();
        lfs.set("sha256", digest(name)).set("size", content.size());
        file.set("lfs", std::move(lfs));
      } else {
        file.set("blobId", digest(name));
      }
      siblings.push_back(std::move(file));
    }
    Json json = Json::object();
    json.set("sha", kCommit).set("siblings", std::move(siblings));
    return json.dump();
  }

  static ServedReply content(const ServedRequest& request, const std::string& bytes) {
    const std::string range = request.header("range");
    if (range.empty()) return {.body = bytes};
    const std::size_t begin = std::stoul(range.substr(std::string("bytes=").size()));
    if (begin >= bytes.size()) return {.status = 416};
    const std::string said = std::to_string(begin) + "-" + std::to_string(bytes.size() - 1) + "/";
    return {.status = 206,
            .body = bytes.substr(begin),
            .headers = {{"Content-Range", "bytes " + said + std::to_string(bytes.size())}}};
  }

  // What the hub answers instead, where it answers.
  using Before = std::function<std::optional<ServedReply>(const ServedRequest&)>;
  void answer_first(Before before) {
    const std::scoped_lock lock(mutex_);
    before_ = std::move(before);
  }

  ServedReply answer(const ServedRequest& request) {
    {
      const std::scoped_lock lock(mutex_);
      if (before_) {
        if (std::optional<ServedReply> reply = before_(request)) return *reply;
      }
    }
    if (request.path == "/api/models/org/name/revision/main?blobs=true") return {.body = listing()};
    const std::string files = "/org/name/resolve/" + kCommit + "/";
    if (request.path.starts_with(files)) {
      const auto it = files_.find(request.path.substr(files.size()));
      if (it != files_.end()) return content(request, it->second);
    }
    return {.status = 404};
  }

  HubSettings settings() const { return {.cache = dir_.path() + "/hub", .endpoint = server_.url() + "/"}; }
  Result<std::string> pull(HubSettings settings, HubModel model = {.id = "org/name"}) {
    return pull_model(settings, model, {.retry_delay_ms = 1});
  }
  Result<std::string> pull() { return pull(settings()); }
  fs::path root() const { return fs::path(dir_.path()) / "hub" / "models--org--name"; }
  fs::path blob(const std::string& name) const { return root() / "blobs" / digest(name); }
  fs::path incomplete(const std::string& name) const { return blob(name).string() + ".incomplete"; }
  void expect_pulled() {
    const Result<std::string> pulled = pull();
    ASSERT_TRUE(pulled.ok()) << pulled.status().message();
    EXPECT_EQ(read(*pulled + "/model.safetensors"), files_["model.safetensors"]);
    EXPECT_FALSE(fs::exists(incomplete("model.safetensors")));
  }
  // Has the first attempt end after `size` bytes of the weights.
  void put_incomplete(const std::string& bytes) {
    fs::create_directories(root() / "blobs");
    std::ofstream(incomplete("model.safetensors"), std::ios::binary) << bytes;
  }
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const ServedRequest& request : server_.requests("/model.safetensors")) all.push_back(request.header("range"));
    return all;
  }

  test::ScratchDir dir_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> lfs_;
  std::mutex mutex_;
  Before before_;
  HttpServer server_{[this](const ServedRequest& request) { return answer(request); }};
};

TEST_F(HubTest, WritesTheCacheAsTheHubsToolsDo) {
  const Result<std::string> pulled = pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(*pulled, (root() / "snapshots" / kCommit).string());
  EXPECT_EQ(read(root() / "refs/main"), kCommit);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    EXPECT_EQ(fs::read_symlink(fs::path(*pulled) / name), "../../blobs/" + digest(name));
    EXPECT_EQ(read(fs::path(*pulled) / name), files_[name]);
    EXPECT_TRUE(fs::exists(dir_.path() + "/hub/.locks/models--org--name/" + digest(name) + ".lock"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(*pulled), {}), 3) << "and nothing that no engine reads";
  EXPECT_EQ(std::distance(fs::directory_iterator(root() / "blobs"), {}), 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(root() / "refs"), {}), 1);
  EXPECT_EQ(*find_in_hub_cache(settings(), {.id = "org/name"}, ModelContent::kWeights), *pulled);

  const std::size_t requests = server_.requests().size();
  ASSERT_TRUE(pull().ok());
  EXPECT_EQ(server_.requests().size(), requests + 1) << "the second time only asks what there is";
}

TEST_F(HubTest, FetchesTheShardsOfTheIndex) {
  files_.erase("model.safetensors");
  add_weights("a.safetensors", "first");
  add_weights("b.safetensors", "second");
  add_weights("consolidated.safetensors", "both again");
  files_["model.safetensors.index.json"] = R"({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}})";
  const Result<std::string> pulled = pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(read(*pulled + "/b.safetensors"), "second");
  EXPECT_FALSE(fs::exists(*pulled + "/consolidated.safetensors"));
}

TEST_F(HubTest, FetchesNoWeightsThatNobodyAskedFor) {
  const PullOptions options{.content = ModelContent::kConfig};
  const Result<std::string> pulled = pull_model(settings(), {.id = "org/name"}, options);
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_TRUE(fs::exists(*pulled + "/config.json"));
  EXPECT_THAT(ranges(), IsEmpty());
}

TEST_F(HubTest, EscapesRevisionsAndWritesTheirRefs) {
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.path == "/api/models/org/name/revision/refs%2Fpr%2F1?blobs=true") return ServedReply{.body = listing()};
    return std::nullopt;
  });
  ASSERT_TRUE(pull(settings(), {.id = "org/name", .revision = "refs/pr/1"}).ok());
  EXPECT_EQ(read(root() / "refs/refs/pr/1"), kCommit);
}

TEST_F(HubTest, GoesOnWhereItEnded) {
  put_incomplete(files_["model.safetensors"].substr(0, 100'000));
  expect_pulled();
  EXPECT_THAT(ranges(), ElementsAre("bytes=100000-"));
}

TEST_F(HubTest, ChecksAFileThatOnlyLackedItsName) {
  put_incomplete(files_["model.safetensors"]);
  expect_pulled();
  EXPECT_THAT(ranges(), IsEmpty());
}

TEST_F(HubTest, StartsOverWhereTheServerDoesNotKnowRanges) {
  put_incomplete("other bytes");
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.header("range").empty()) return std::nullopt;
    return ServedReply{.body = files_["model.safetensors"]};
  });
  expect_pulled();
}

TEST_F(HubTest, StartsOverWhereWhatWasThereIsWrong) {
  put_incomplete("other bytes");
  expect_pulled();
  EXPECT_THAT(ranges(), ElementsAre("bytes=11-", ""));
  fs::remove(blob("model.safetensors"));
  put_incomplete(pattern(400'000));  // too long
  expect_pulled();
}

TEST_F(HubTest, RefusesAnotherRangeThanItAskedFor) {
  put_incomplete(files_["model.safetensors"].substr(0, 1000));
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.header("range").empty()) return std::nullopt;
    return ServedReply{.status = 206,
                       .body = files_["model.safetensors"].substr(900),
                       .headers = {{"Content-Range", "bytes 900-299999/300000"}}};
  });
  expect_error(pull(), StatusCode::kDataLoss, {"model.safetensors: asked for bytes from 1000 on"});
  EXPECT_EQ(read(incomplete("model.safetensors")).size(), 1000U);
}

TEST_F(HubTest, GoesOnAfterATruncatedBody) {
  int attempts = 0;
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/model.safetensors") || ++attempts > 8) return std::nullopt;
    ServedReply reply = content(request, files_["model.safetensors"]);
    reply.sent = 10'000;
    return reply;
  });
  expect_pulled();  // more attempts than would be made without progress
  EXPECT_THAT(ranges(), SizeIs(9));
  EXPECT_EQ(ranges()[8], "bytes=80000-");
}

TEST_F(HubTest, TriesAgainWhenTheServerFails) {
  const auto fail = [this](int times) {
    answer_first([times, failures = 0](const ServedRequest& request) mutable -> std::optional<ServedReply> {
      if (!request.path.ends_with("/model.safetensors") || ++failures > times) return std::nullopt;
      return ServedReply{.status = failures % 2 == 1 ? 503 : 429, .body = "x", .headers = {{"Retry-After", "0"}}};
    });
  };
  fail(4);
  expect_pulled();
  fs::remove(blob("model.safetensors"));
  fail(5);
  expect_error(pull(), StatusCode::kNotFound, {"org/name: model.safetensors", server_.url(), "HTTP status 503"});
  EXPECT_THAT(ranges(), SizeIs(10));
}

TEST_F(HubTest, RefusesOtherBytes) {
  const std::string right = files_["model.safetensors"];
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/model.safetensors")) return std::nullopt;
    return ServedReply{.body = std::string(right.size(), 'x')};
  });
  expect_error(pull(), StatusCode::kDataLoss, {"model.safetensors", "SHA-256", digest("model.safetensors")});
  EXPECT_THAT(ranges(), SizeIs(1));
  EXPECT_FALSE(fs::exists(blob("model.safetensors")));
  EXPECT_FALSE(fs::exists(root() / "refs/main"));
  EXPECT_EQ(read(incomplete("model.safetensors")), "");

  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/model.safetensors")) return std::nullopt;
    return ServedReply{.body = right + "more"};
  });
  expect_error(pull(), StatusCode::kDataLoss, {"model.safetensors", "more than its 300000 bytes"});

  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/tokenizer.json")) return std::nullopt;
    return ServedReply{.body = "[]"};
  });
  fs::remove(blob("tokenizer.json"));
  expect_error(pull(), StatusCode::kDataLoss, {"tokenizer.json", "SHA-1"});
}

TEST_F(HubTest, SendsItsTokenToTheHubAlone) {
  HttpServer storage([this](const ServedRequest& request) { return content(request, files_["model.safetensors"]); });
  const auto store_at = [&](const std::string& location) {
    answer_first([this, location](const ServedRequest& request) -> std::optional<ServedReply> {
      if (request.path == "/moved") return ServedReply{.body = files_["tokenizer.json"]};
      if (request.path.ends_with("/tokenizer.json"))
        return ServedReply{.status = 307, .headers = {{"Location", "/moved"}}};
      if (request.path.ends_with("/model.safetensors"))
        return ServedReply{.status = 302, .body = "gone", .headers = {{"Location", location}}};
      return std::nullopt;
    });
  };
  store_at(storage.url() + "/signed?x=1");
  HubSettings settings = this->settings();
  settings.token = "secret";
  const Result<std::string> pulled = pull(settings);
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(read(*pulled + "/model.safetensors"), files_["model.safetensors"]);
  ASSERT_THAT(server_.requests(), SizeIs(5));
  for (const ServedRequest& request : server_.requests())
    EXPECT_EQ(request.header("authorization"), "Bearer secret") << request.path;
  ASSERT_THAT(storage.requests(), SizeIs(1));
  EXPECT_EQ(storage.requests()[0].header("authorization"), "");
  EXPECT_EQ(storage.requests()[0].path, "/signed?x=1");

  // The same address under another name is another host; a resumed request carries its range along.
  std::string renamed = storage.url() + "/signed";
  renamed.replace(renamed.find("127.0.0.1"), 9, "localhost");
  store_at(renamed);
  fs::remove(blob("model.safetensors"));
  put_incomplete(files_["model.safetensors"].substr(0, 500));
  ASSERT_TRUE(pull(settings).ok());
  EXPECT_EQ(storage.requests().back().header("authorization"), "");
  EXPECT_EQ(storage.requests().back().header("range"), "bytes=500-");
}

TEST_F(HubTest, FollowsNoRedirectThatItShouldNot) {
  const auto redirect_to = [this](const char* location) {
    answer_first([location](const ServedRequest&) -> std::optional<ServedReply> {
      return ServedReply{.status = 302, .headers = {{"Location", location}}};
    });
  };
  redirect_to("/again");
  expect_error(pull(), StatusCode::kNotFound, {"more than 10 redirects"});
  redirect_to("file:///etc/passwd");
  expect_error(pull(), StatusCode::kInvalidArgument, {"redirects to", "file:///etc/passwd", "accepted is http"});
}

TEST_F(HubTest, TakesTheTokenFromItsFile) {
  HubSettings settings = this->settings();
  settings.token_file = dir_.write("token", " from-file\n");
  ASSERT_TRUE(pull(settings).ok());
  EXPECT_EQ(server_.requests()[0].header("authorization"), "Bearer from-file");
  settings.token = "two words";
  expect_error(pull(settings), StatusCode::kInvalidArgument, {"HF_TOKEN"});
  settings.token = "line\nInjected: header";
  expect_error(pull(settings), StatusCode::kInvalidArgument, {"HF_TOKEN"});
}

TEST_F(HubTest, ExplainsRefusals) {
  struct Case {
    std::string part;
    ServedReply reply;
    std::vector<std::string> words;
  };
  const std::vector<Case> cases = {
      {"/api/", {.status = 404}, {"org/name", server_.url(), "404"}},
      {"/api/", {.status = 404, .headers = {{"X-Error-Code", "RevisionNotFound"}}}, {"no revision \"main\""}},
      {"/api/", {.status = 401}, {"no such model", "private or gated", "HF_TOKEN"}},
      {"/resolve/", {.status = 403}, {"licence", server_.url() + "/org/name", "HF_TOKEN"}},
      {"/resolve/", {.status = 401, .headers = {{"X-Error-Code", "GatedRepo"}}}, {"licence", "HF_TOKEN"}},
      {"/resolve/", {.status = 418}, {"HTTP status 418"}},
      {"/api/", {.status = 500}, {"HTTP status 500"}},
  };
  for (const Case& c : cases) {
    answer_first([&c](const ServedRequest& request) -> std::optional<ServedReply> {
      return request.path.find(c.part) == std::string::npos ? std::nullopt : std::optional(c.reply);
    });
    expect_error(pull(), StatusCode::kNotFound, c.words);
  }
  EXPECT_FALSE(fs::exists(root() / "refs"));
}

TEST_F(HubTest, ExplainsWhatIsNotThere) {
  HubSettings settings = this->settings();
  settings.offline = true;
  expect_error(pull(settings), StatusCode::kFailedPrecondition, {"HF_HUB_OFFLINE"});
  settings.offline = false;
  settings.endpoint = "http://127.0.0.1:1";
  expect_error(pull(settings), StatusCode::kNotFound, {"org/name: http://127.0.0.1:1"});
  for (const char* endpoint : {"", "huggingface.co", "ftp://x", "file:///etc"}) {
    settings.endpoint = endpoint;
    expect_error(pull(settings), StatusCode::kInvalidArgument, {"HF_ENDPOINT", endpoint});
  }
  files_.erase("model.safetensors");
  expect_error(pull(), StatusCode::kNotFound, {"org/name", "pytorch_model.bin"});
  EXPECT_THAT(server_.requests("/resolve/"), IsEmpty());
}

TEST_F(HubTest, RefusesAHostileListing) {
  files_["../evil.json"] = "x";
  expect_error(pull(), StatusCode::kDataLoss, {"../evil.json"});
  EXPECT_FALSE(fs::exists(root() / "snapshots"));
}

TEST_F(HubTest, ExplainsAFolderThatCannotBeWritten) {
  HubSettings settings = this->settings();
  settings.cache = dir_.write("file", "") + "/hub";
  expect_error(pull(settings), StatusCode::kNotFound, {"cannot make the folder " + settings.cache, "Not a directory"});
}

TEST_F(HubTest, NeedsRoomBeforeItStarts) {
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.path.find("/api/") == std::string::npos) return std::nullopt;
    std::string text = listing();
    const std::string size = "300000";
    for (std::size_t at = text.find(size); at != std::string::npos; at = text.find(size, at + 1))
      text.replace(at, size.size(), "300000000000000000");
    return ServedReply{.body = text};
  });
  expect_error(pull(), StatusCode::kResourceExhausted, {"org/name: ", "MiB more are needed"});
  EXPECT_THAT(ranges(), IsEmpty());
}

TEST_F(HubTest, FetchesOnceForTwoAtOnce) {
  answer_first([](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.path.ends_with(".safetensors")) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return std::nullopt;
  });
  std::vector<std::thread> pulling;
  std::atomic<int> succeeded{0};
  for (int i = 0; i < 4; ++i) pulling.emplace_back([&] { succeeded += pull().ok(); });
  for (std::thread& thread : pulling) thread.join();
  EXPECT_EQ(succeeded, 4);
  EXPECT_THAT(ranges(), SizeIs(1));
  expect_pulled();
}

TEST_F(HubTest, ResolvesPathsFirstThenTheCacheThenTheHub) {
  const std::string folder = dir_.path();
  EXPECT_EQ(*resolve_model({.path_or_id = folder}, {}), folder);
  EXPECT_EQ(*resolve_model({.path_or_id = "/no/such/folder"}, {}), "/no/such/folder");
  expect_error(resolve_model({.path_or_id = folder, .revision = "v1"}, {}), StatusCode::kInvalidArgument,
               {"--revision: \"v1\"", folder});
  expect_error(resolve_model({.path_or_id = "org/name"}, settings()), StatusCode::kNotFound,
               {"org/name is no path here", root(), "`tessera pull org/name`", "--download"});
  expect_error(resolve_model({.path_or_id = "org/name", .revision = "v1"}, settings()), StatusCode::kNotFound,
               {"`tessera pull org/name --revision v1`"});

  const std::string snapshot = root() / "snapshots" / kCommit;
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name", .content = ModelContent::kConfig, .download = true}, settings()),
            snapshot);
  expect_error(resolve_model({.path_or_id = "org/name"}, settings()), StatusCode::kNotFound,
               {"only a part", "lacks model.safetensors"});
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name", .download = true}, settings()), snapshot);
  const std::size_t requests = server_.requests().size();
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name", .download = true}, settings()), snapshot);
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name", .revision = kCommit}, settings()), snapshot);
  EXPECT_EQ(server_.requests().size(), requests) << "what is there is not asked for again";
}

}  // namespace
}  // namespace tessera
