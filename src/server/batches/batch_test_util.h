// Helpers for tests of batches. They upload files to a server, start batches, and read the answers.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {

inline std::string form(const std::string& content, const std::string& more = "") {
  const std::string part = "--B\r\nContent-Disposition: form-data; name=";
  return part + "\"purpose\"\r\n\r\nbatch\r\n" + more + part + "\"file\"; filename=\"in.jsonl\"\r\n\r\n" + content +
         "\r\n--B--\r\n";
}
inline std::string with_line(std::string request, const std::string& line) {
  return request.insert(request.find("\r\n") + 2, line + "\r\n");
}
inline std::string sent_by(const std::string& key, std::string request) {
  return with_line(std::move(request), "Authorization: Bearer " + key);
}
inline std::string upload(const std::string& body, const std::string& type = "multipart/form-data; boundary=B") {
  return "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: " + type +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string text_in(const Json& object, const char* key) { return object.find(key)->as_string(); }
inline std::string request_line(const std::string& id, const std::string& body) {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/completions", "body": {"model": "demo", )" +
         body + "}}\n";
}
inline std::string short_line(const std::string& id, int tokens = 2) {
  return request_line(
      id, R"("prompt": "Once", "temperature": 0, "ignore_eos": true, "max_tokens": )" + std::to_string(tokens));
}
inline std::int64_t counted(const Json& batch, const char* what) {
  return batch.find("request_counts")->find(what)->as_int();
}

// A server with a folder for files.
class BatchServerTest : public ServerTest {
 protected:
  ServerOptions options() const {
    ServerOptions options;
    options.file_folder = folder_.path();
    return options;
  }
  static std::string put(const Running& running, const std::string& content) {
    return text_in(running.json(upload(form(content))), "id");
  }
  static std::string begin(const std::string& file, const std::string& endpoint = "/v1/completions") {
    return post("/v1/batches", R"({"input_file_id": ")" + file + R"(", "endpoint": ")" + endpoint +
                                   R"(", "completion_window": "24h", "metadata": {"job": "a"}})");
  }
  static Json get_batch(const Running& running, const std::string& id, const std::string& key = "") {
    return running.json(sent_by(key, get("/v1/batches/" + id)));
  }
  // Waits until a batch has ended, and returns it. `key` is the API key of the batch's owner.
  static Json ended(const Running& running, const std::string& id, const std::string& key = "") {
    for (int i = 0; i < 1200; ++i) {
      Json batch = get_batch(running, id, key);
      const std::string status = text_in(batch, "status");
      if (status == "completed" || status == "failed" || status == "expired" || status == "cancelled") return batch;
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
    }
    ADD_FAILURE() << "the batch did not end";
    return get_batch(running, id, key);
  }
  // Returns the lines of one of the batch's files, by custom_id. `which` names the member of the batch that holds the
  // file's id.
  static std::map<std::string, Json> lines(const Running& running, const Json& batch, const char* which) {
    std::map<std::string, Json> found;
    if (batch.find(which)->is_null()) return found;
    const Reply reply = running.ask(get("/v1/files/" + text_in(batch, which) + "/content"));
    EXPECT_EQ(reply.status, 200);
    std::istringstream all(reply.body);
    for (std::string line; std::getline(all, line);) {
      Result<Json> json = Json::parse(line, "line");
      EXPECT_TRUE(json.ok()) << line;
      if (json.ok()) {
        EXPECT_TRUE(found.emplace(text_in(*json, "custom_id"), *json).second) << "twice: " << line;
      }
    }
    return found;
  }

  // Returns the sum of the usage in the lines of a batch's output file, in the form of the batch's own usage.
  static Json usage_of_lines(const Running& running, const Json& batch) {
    Usage sum;
    for (const auto& [id, line] : lines(running, batch, "output_file_id"))
      sum.add(read_usage(*line.find("response")->find("body")->find("usage")));
    JsonWriter json;
    write_response_usage(json, sum);
    return *Json::parse(json.text(), "usage");
  }

  test::ScratchDir folder_;
};

}  // namespace tessera::testing
