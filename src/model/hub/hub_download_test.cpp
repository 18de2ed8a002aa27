// Catches: a download that is accepted although its bytes are wrong, too few, too many or of another range; a download
// that starts over although it could resume; a cache that is left in a state that the hub's own tools would not
// leave.
#include "tessera/model/hub/hub_test_util.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::contents_of;
using test::expect_error;
using test::HubTest;
using test::kCommit;
using test::pattern;
using test::ServedReply;
using test::ServedRequest;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST_F(HubTest, WritesTheCacheAsTheHubsToolsDo) {
  const Result<std::string> pulled = pull();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(*pulled, (root() / "snapshots" / kCommit).string());
  EXPECT_EQ(contents_of(root() / "refs/main"), kCommit);
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"}) {
    EXPECT_EQ(fs::read_symlink(fs::path(*pulled) / name), "../../blobs/" + digest(name));
    EXPECT_EQ(contents_of(fs::path(*pulled) / name), files_[name]);
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
  EXPECT_EQ(contents_of(*pulled + "/b.safetensors"), "second");
  EXPECT_FALSE(fs::exists(*pulled + "/consolidated.safetensors"));
}

TEST_F(HubTest, FetchesAnEmbeddingModelsPoolingIntoItsFolder) {
  files_["modules.json"] = "[]";
  files_["1_Pooling/config.json"] = R"({"pooling_mode_lasttoken": true})";
  files_["2_Dense/config.json"] = "{}";
  for (int time = 0; time < 2; ++time) {
    const Result<std::string> pulled = pull();
    ASSERT_TRUE(pulled.ok()) << pulled.status().message();
    const fs::path file = fs::path(*pulled) / "1_Pooling/config.json";
    EXPECT_EQ(contents_of(file), files_["1_Pooling/config.json"]);
    EXPECT_EQ(fs::read_symlink(file), "../../../blobs/" + digest("1_Pooling/config.json"));
    EXPECT_FALSE(fs::exists(fs::path(*pulled) / "2_Dense"));
  }
}

TEST_F(HubTest, DownloadsNoWeightsIfOnlyConfigIsRequested) {
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
  EXPECT_EQ(contents_of(root() / "refs/refs/pr/1"), kCommit);
}

TEST_F(HubTest, ResumesAPartialDownload) {
  put_incomplete(files_["model.safetensors"].substr(0, 100'000));
  expect_pulled();
  EXPECT_THAT(ranges(), ElementsAre("bytes=100000-"));
}

TEST_F(HubTest, ChecksTheDigestOfACompletePartialFile) {
  put_incomplete(files_["model.safetensors"]);
  expect_pulled();
  EXPECT_THAT(ranges(), IsEmpty());
}

TEST_F(HubTest, RestartsIfTheServerIgnoresRanges) {
  put_incomplete("other bytes");
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.header("range").empty()) return std::nullopt;
    return ServedReply{.body = files_["model.safetensors"]};
  });
  expect_pulled();
}

TEST_F(HubTest, RestartsIfThePartialFileIsWrong) {
  put_incomplete("other bytes");
  expect_pulled();
  EXPECT_THAT(ranges(), ElementsAre("bytes=11-", ""));
  fs::remove(blob("model.safetensors"));
  put_incomplete(pattern(400'000));  // longer than the whole file
  expect_pulled();
}

TEST_F(HubTest, RefusesARangeThatWasNotRequested) {
  put_incomplete(files_["model.safetensors"].substr(0, 1000));
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (request.header("range").empty()) return std::nullopt;
    return ServedReply{.status = 206,
                       .body = files_["model.safetensors"].substr(900),
                       .headers = {{"Content-Range", "bytes 900-299999/300000"}}};
  });
  expect_error(pull(), StatusCode::kDataLoss,
               {"model.safetensors: the server sends other bytes than the requested ones, from 1000 on"});
  EXPECT_EQ(contents_of(incomplete("model.safetensors")).size(), 1000U);
}

TEST_F(HubTest, ResumesAfterATruncatedBody) {
  int attempts = 0;
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/model.safetensors") || ++attempts > 8) return std::nullopt;
    ServedReply reply = content(request, files_["model.safetensors"]);
    reply.sent = 10'000;
    return reply;
  });
  expect_pulled();  // more than 5 attempts are allowed, because each of them makes progress
  EXPECT_THAT(ranges(), SizeIs(9));
  EXPECT_EQ(ranges()[8], "bytes=80000-");
}

TEST_F(HubTest, RetriesTemporaryFailures) {
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

TEST_F(HubTest, RefusesAWrongDigest) {
  const std::string right = files_["model.safetensors"];
  answer_first([&](const ServedRequest& request) -> std::optional<ServedReply> {
    if (!request.path.ends_with("/model.safetensors")) return std::nullopt;
    return ServedReply{.body = std::string(right.size(), 'x')};
  });
  expect_error(pull(), StatusCode::kDataLoss, {"model.safetensors", "SHA-256", digest("model.safetensors")});
  EXPECT_THAT(ranges(), SizeIs(1));
  EXPECT_FALSE(fs::exists(blob("model.safetensors")));
  EXPECT_FALSE(fs::exists(root() / "refs/main"));
  EXPECT_EQ(contents_of(incomplete("model.safetensors")), "");

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

}  // namespace
}  // namespace tessera
