// Catches: a token that is sent to another host; a refusal or a malicious answer of the hub that the error does not
// explain; two processes that write the same file at once; a model that is looked up in the wrong place.
#include <atomic>
#include <chrono>
#include <thread>

#include "tessera/model/hub/hub_test_util.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::expect_error;
using test::HttpServer;
using test::HubTest;
using test::kCommit;
using test::ServedReply;
using test::ServedRequest;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(HubTest, SendsTheTokenOnlyToTheHub) {
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
  EXPECT_EQ(contents_of(*pulled + "/model.safetensors"), files_["model.safetensors"]);
  ASSERT_THAT(server_.requests(), SizeIs(5));
  for (const ServedRequest& request : server_.requests())
    EXPECT_EQ(request.header("authorization"), "Bearer secret") << request.path;
  ASSERT_THAT(storage.requests(), SizeIs(1));
  EXPECT_EQ(storage.requests()[0].header("authorization"), "");
  EXPECT_EQ(storage.requests()[0].path, "/signed?x=1");

  // Now the URL of the redirect has "localhost" instead of 127.0.0.1. This counts as another host, so the request
  // carries no token. A resumed download that is redirected keeps its range.
  std::string renamed = storage.url() + "/signed";
  renamed.replace(renamed.find("127.0.0.1"), 9, "localhost");
  store_at(renamed);
  fs::remove(blob("model.safetensors"));
  put_incomplete(files_["model.safetensors"].substr(0, 500));
  ASSERT_TRUE(pull(settings).ok());
  EXPECT_EQ(storage.requests().back().header("authorization"), "");
  EXPECT_EQ(storage.requests().back().header("range"), "bytes=500-");
}

TEST_F(HubTest, RefusesLoopsAndOtherSchemesInRedirects) {
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

TEST_F(HubTest, ReadsTheTokenFromAFile) {
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

TEST_F(HubTest, NamesMissingModelsAndRevisions) {
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

TEST_F(HubTest, RefusesAMaliciousListing) {
  files_["../evil.json"] = "x";
  expect_error(pull(), StatusCode::kDataLoss, {"../evil.json"});
  EXPECT_FALSE(fs::exists(root() / "snapshots"));
}

TEST_F(HubTest, NamesAFolderThatCannotBeWritten) {
  HubSettings settings = this->settings();
  settings.cache = dir_.write("file", "") + "/hub";
  expect_error(pull(settings), StatusCode::kNotFound, {"cannot make the folder " + settings.cache, "Not a directory"});
}

TEST_F(HubTest, ChecksFreeSpaceFirst) {
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

TEST_F(HubTest, DownloadsOnceForConcurrentCallers) {
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
               {"revision: \"v1\"", folder});
  expect_error(resolve_model({.path_or_id = "org/name"}, settings()), StatusCode::kNotFound,
               {"org/name is no path here", root()});

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

TEST_F(HubTest, AGgufModelComesWithItsProjector) {
  add_weights("m-Q4_0.gguf", test::pattern(1000));
  add_weights("mmproj-F16.gguf", test::pattern(500));
  const fs::path snapshot = root() / "snapshots" / kCommit;
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name:Q4_0", .without_projector = true, .download = true}, settings()),
            snapshot / "m-Q4_0.gguf");
  EXPECT_FALSE(fs::exists(snapshot / "mmproj-F16.gguf"));
  const ModelRequest named{.path_or_id = "org/name:Q4_0", .projector = "mmproj-F16.gguf"};
  expect_error(resolve_model(named, settings()), StatusCode::kNotFound, {"has no projector mmproj-F16.gguf"});
  ASSERT_TRUE(pull(settings(), {.id = "org/name", .gguf = "Q4_0"}).ok());
  EXPECT_EQ(contents_of(snapshot / "mmproj-F16.gguf"), test::pattern(500));
  EXPECT_EQ(*resolve_model(named, settings()), snapshot / "m-Q4_0.gguf");
}

TEST_F(HubTest, SplitSetInASubfolderIsFetchedWhole) {
  const std::string first = "BF16/m-BF16-00001-of-00002.gguf";
  const std::string second = "BF16/m-BF16-00002-of-00002.gguf";
  add_weights(first, test::pattern(1000));
  add_weights(second, test::pattern(500));
  const std::string snapshot = (root() / "snapshots" / kCommit).string();
  const Result<std::string> pulled = pull(settings(), {.id = "org/name", .gguf = "BF16"});
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(*pulled, snapshot + "/" + first);
  EXPECT_EQ(contents_of(snapshot + "/" + second), test::pattern(500));
  EXPECT_EQ(fs::read_symlink(*pulled), "../../../blobs/" + digest(first));
  EXPECT_EQ(*resolve_model({.path_or_id = "org/name:BF16"}, settings()), *pulled);
}

// A pull by the bare id fails here, because the hub's repository has no safetensors either.
TEST_F(HubTest, CacheWithGgufFilesAloneAsksForAType) {
  files_.clear();
  add_weights("m-Q4_0.gguf", test::pattern(1000));
  ASSERT_TRUE(pull(settings(), {.id = "org/name", .gguf = "Q4_0"}).ok());
  expect_error(resolve_model({.path_or_id = "org/name"}, settings()), StatusCode::kFailedPrecondition,
               {"has GGUF files alone: m-Q4_0.gguf; accepted: org/name:TYPE, as in org/name:Q4_K_M"});
  expect_error(resolve_model({.path_or_id = "org/name", .download = true}, settings()), StatusCode::kNotFound,
               {"name one of the GGUF files by its type"});
}

}  // namespace
}  // namespace tessera
