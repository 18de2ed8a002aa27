// A test server that acts as a hub with one model, and a cache to which the model is downloaded.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "tessera/base/json.h"
#include "tessera/model/hub/hub_digest.h"
#include "tessera/model/hub/hub_download.h"
#include "tessera/model/hub/test_http_server.h"
#include "tessera/model/test_support.h"

namespace tessera::test {

namespace fs = std::filesystem;

inline const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

inline std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string pattern(std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(i * 7 + i / 256);
  return bytes;
}

// A test fixture with a hub and a cache. A test can replace replies of the hub with answer_first().
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

  // A function that can replace a reply of the hub. It returns the reply to send, or nothing if the hub is to send its
  // own.
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
    EXPECT_EQ(contents_of(*pulled + "/model.safetensors"), files_["model.safetensors"]);
    EXPECT_FALSE(fs::exists(incomplete("model.safetensors")));
  }
  // Writes a partial download of the weights.
  void put_incomplete(const std::string& bytes) {
    fs::create_directories(root() / "blobs");
    std::ofstream(incomplete("model.safetensors"), std::ios::binary) << bytes;
  }
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const ServedRequest& request : server_.requests("/model.safetensors")) all.push_back(request.header("range"));
    return all;
  }

  ScratchDir dir_;
  std::map<std::string, std::string> files_;
  std::vector<std::string> lfs_;
  std::mutex mutex_;
  Before before_;
  HttpServer server_{[this](const ServedRequest& request) { return answer(request); }};
};

}  // namespace tessera::test
