// Tests, end to end, the routes that gateways and load balancers use. Catches: routes that answer wrongly; requests
// that /abort_request does not end; and administrators' routes that accept a client's key.
#include "tessera/server/info_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/server/http/bodies/content_coding.h"
#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using InfoRoutesTest = ServerTest;

// Returns the values of a metric, as texts.
std::vector<std::string> values_of(const Running& running, const std::string& metric) {
  std::vector<std::string> values;
  std::istringstream lines(running.ask(get("/metrics")).body);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(metric + "{") || line.starts_with(metric + " "))
      values.push_back(line.substr(line.rfind(' ') + 1));
  return values;
}

TEST_F(InfoRoutesTest, GatewaysFindLoadAndSizes) {
  const Running running(engine());
  const Json load = running.json(get("/v1/loads?include=core,disagg,queues,memory"));
  const Json& first = load.find("loads")->as_array()[0];
  EXPECT_EQ(first.find("num_running_reqs")->as_int(), 0);
  EXPECT_EQ(first.find("max_running_requests")->as_int(), 8);
  EXPECT_GT(first.find("max_total_num_tokens")->as_int(), 0);
  EXPECT_GT(first.find("memory")->find("weight_gb")->as_double(), 0);
  EXPECT_EQ(running.ask(get("/v1/loads?format=prometheus")).status, 200);
  EXPECT_EQ(running.json(get("/v1/loads?dp_rank=7"), 400).find("error")->find("param")->as_string(), "dp_rank");
  EXPECT_EQ(running.json(get("/get_load")).as_array()[0].find("num_reqs")->as_int(), 0);
  for (const char* path : {"/server_info", "/get_server_info"}) {
    const Json info = running.json(get(path));
    EXPECT_EQ(info.find("tp_size")->as_int(), 1);
    EXPECT_EQ(info.find("context_length")->as_int(), 512);
    EXPECT_EQ(info.find("max_total_num_tokens")->as_int(), first.find("max_total_num_tokens")->as_int());
    EXPECT_EQ(info.find("disaggregation_mode")->as_string(), "null");
  }
  EXPECT_EQ(running.ask(get("/model_info")).body, running.ask(get("/get_model_info")).body);
  EXPECT_EQ(running.json(get("/model_info")).find("weight_version")->as_string(), "default");
}

TEST_F(InfoRoutesTest, DraftsAreNoRunningRequests) {
  EngineOptions options;
  options.drafts.source = DraftSource::kText;
  const std::unique_ptr<Engine> drafting = make_engine(options);
  EXPECT_EQ(drafting->runner().options().max_requests, 8 * (1 + 8));
  const Running running(*drafting);
  EXPECT_EQ(running.json(get("/server_info")).find("max_running_requests")->as_int(), 8);
  EXPECT_EQ(running.json(get("/v1/loads")).find("loads")->as_array()[0].find("max_running_requests")->as_int(), 8);
}

TEST_F(InfoRoutesTest, LongAnswersAreCompressedForClientsThatAcceptIt) {
  const Running running(engine());
  const Reply plain = running.ask(get("/metrics"));
  const Reply encoded = running.ask(get("/metrics", "Accept-Encoding: gzip\r\n"));
  EXPECT_TRUE(encoded.has_line("Content-Encoding: gzip")) << encoded.head;
  EXPECT_LT(encoded.body.size(), plain.body.size() / 2);
  EXPECT_THAT(running.ask(get("/version", "Accept-Encoding: gzip\r\n")).head, Not(HasSubstr("Content-Encoding")));
  const Reply stream = running.ask(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n"
      "Content-Length: 65\r\n\r\n"
      R"({"model": "demo", "prompt": "a", "stream": true, "max_tokens": 5})");
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.head, Not(HasSubstr("Content-Encoding")));
}

TEST_F(InfoRoutesTest, AnswersAbove64KibAreCompressedInChunks) {
  const Running running(engine());
  const Reply plain = running.ask(get("/openapi.json"));
  ASSERT_GT(plain.body.size(), 2 * 65536u);
  for (const char* coding : {"zstd", "gzip"}) {
    const Reply encoded = running.ask(get("/openapi.json", std::string("Accept-Encoding: ") + coding + "\r\n"));
    EXPECT_EQ(encoded.status, 200);
    EXPECT_TRUE(encoded.has_line(std::string("Content-Encoding: ") + coding)) << encoded.head;
    EXPECT_TRUE(encoded.has_line("Transfer-Encoding: chunked")) << encoded.head;
    EXPECT_LT(encoded.body.size(), plain.body.size() / 2);
    MemoryCharge memory;
    ApiResult<std::string> body = decode_body(encoded.body, coding, plain.body.size(), memory);
    ASSERT_TRUE(body.ok()) << body.error().message;
    EXPECT_EQ(*body, plain.body);
  }
}

TEST_F(InfoRoutesTest, Http10GetsALongCompressedAnswerWithoutChunks) {
  const Running running(engine());
  const Reply plain = running.ask(get("/openapi.json"));
  const Reply encoded =
      running.ask("GET /openapi.json HTTP/1.0\r\nConnection: keep-alive\r\nAccept-Encoding: zstd\r\n\r\n");
  EXPECT_TRUE(encoded.has_line("Connection: close")) << encoded.head;
  EXPECT_THAT(encoded.head, Not(HasSubstr("Transfer-Encoding")));
  MemoryCharge memory;
  ApiResult<std::string> body = decode_body(encoded.body, "zstd", plain.body.size(), memory);
  ASSERT_TRUE(body.ok()) << body.error().message;
  EXPECT_EQ(*body, plain.body);
}

TEST_F(InfoRoutesTest, LongCompressedAnswersKeepTheConnection) {
  const Running running(engine());
  const std::string path = "/openapi.json HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n";
  Client client(running.port);
  client.send("HEAD " + path);
  const Reply head = client.read_reply(/*head_only=*/true);
  EXPECT_EQ(head.status, 200);
  EXPECT_TRUE(head.has_line("Content-Encoding: gzip")) << head.head;
  client.send("GET " + path);
  const Reply whole = client.read_reply();
  EXPECT_TRUE(whole.has_line("Transfer-Encoding: chunked")) << "the HEAD sent no body: " << whole.head;
  EXPECT_FALSE(whole.body.empty());
  EXPECT_EQ(client.ask(get("/version")).status, 200);
}

TEST_F(InfoRoutesTest, AnswersWithoutMemoryForAnEncoderAreSentPlain) {
  ServerOptions options;
  options.request_memory_bytes = 1 << 20;  // less than an encoder takes beside the part for small requests
  const Running running(engine(), options);
  const Reply plain = running.ask(get("/openapi.json"));
  const Reply long_one = running.ask(get("/openapi.json", "Accept-Encoding: gzip\r\n"));
  EXPECT_THAT(long_one.head, Not(HasSubstr("Content-Encoding")));
  EXPECT_EQ(long_one.body, plain.body);
  const Reply short_one = running.ask(get("/metrics", "Accept-Encoding: gzip\r\n"));
  EXPECT_TRUE(short_one.has_line("Content-Encoding: gzip")) << "it is compressed at once: " << short_one.head;
  EXPECT_THAT(values_of(running, "tessera:request_memory_refused_total"), ElementsAre("0", "0"));
}

TEST_F(InfoRoutesTest, ProbesNeedNoKeyAndTellReadyFromLive) {
  ServerOptions options;
  options.api_keys = {"k"};
  const Running running(engine(), options);
  for (const char* path : {"/health", "/ready", "/ping", "/live"})
    EXPECT_EQ(running.ask(get(path)).status, 200) << path;
  EXPECT_EQ(running.ask(get("/v1/loads")).status, 401);
  running.server->stop(/*drain_s=*/30, /*notice_s=*/30);
  for (const char* path : {"/health", "/ready", "/ping"}) EXPECT_EQ(running.ask(get(path)).status, 503) << path;
  EXPECT_EQ(running.ask(get("/live")).status, 200);
}

TEST_F(InfoRoutesTest, AbortedRequestsAnswerWithWhatTheyHave) {
  const Running running(engine());
  const std::string forever = R"("sampling_params": {"max_new_tokens": 400, "ignore_eos": true, "temperature": 0})";
  const auto start = [&](const std::string& members) {
    return std::async(std::launch::async, [&running, body = "{" + members + ", " + forever + "}"] {
      return running.ask(post("/generate", body));
    });
  };
  std::future<Reply> both = start(R"("text": ["Once", "Twice"], "rid": ["one", "two"])");
  EXPECT_TRUE(eventually([&] { return stat(running, "running") == 2; }));
  EXPECT_EQ(running.json(post("/abort_request", R"({"rid": "none"})")).dump(), R"({"aborted": 0})");
  EXPECT_EQ(running.json(post("/abort_request", R"({"rid": "two"})")).dump(), R"({"aborted": 1})");
  EXPECT_TRUE(eventually([&] { return stat(running, "running") == 1; }));
  // The answer is 2 if the last event of the aborted request "two" is still on its way.
  EXPECT_THAT(running.json(post("/abort_request", R"({"abort_all": true})")).find("aborted")->as_int(), AnyOf(1, 2));
  const Reply reply = both.get();
  EXPECT_EQ(reply.status, 200) << reply.body;
  const Json answers = *Json::parse(reply.body, "answer");
  for (const Json& answer : answers.as_array()) {
    const Json& info = *answer.find("meta_info");
    EXPECT_EQ(info.find("finish_reason")->find("type")->as_string(), "abort");
    EXPECT_LT(info.find("completion_tokens")->as_int(), 400);
    EXPECT_EQ(std::ssize(answer.find("output_ids")->as_array()), info.find("completion_tokens")->as_int());
  }
  for (const char* body : {"{}", R"({"rid": ""})", R"({"rid": 5})", R"({"rids": "a"})", "x"})
    EXPECT_EQ(running.ask(post("/abort_request", body)).status, 400) << body;
}

TEST_F(InfoRoutesTest, AbortedStreamsEndWithTheirReason) {
  const Running running(engine());
  Client client(running.port);
  client.send(post("/v1/chat/completions", R"({"model": "demo", "rid": "mine", "stream": true, "max_tokens": 400,
      "ignore_eos": true, "messages": [{"role": "user", "content": "Hi"}]})"));
  client.read_through("\n\n");
  EXPECT_EQ(running.json(post("/abort_request", R"({"rid": "mine"})")).dump(), R"({"aborted": 1})");
  EXPECT_THAT(client.read_through("[DONE]"), HasSubstr(R"("finish_reason":"abort")"));
}

TEST_F(InfoRoutesTest, AdminRoutesNeedTheAdminKey) {
  ServerOptions options;
  options.api_keys = {"client"};
  options.admin_api_keys = {"admin"};
  const Running running(engine(), options);
  const auto status = [&](const std::string& method, const std::string& path, const std::string& key) {
    return running
        .ask(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nAuthorization: Bearer " + key +
             "\r\n\r\n")
        .status;
  };
  EXPECT_EQ(status("POST", "/flush_cache", "client"), 403);
  EXPECT_EQ(status("POST", "/flush_cache", "wrong"), 401);
  EXPECT_EQ(status("POST", "/flush_cache", "admin"), 200);
  EXPECT_EQ(status("POST", "/abort_request", "client"), 403);
  EXPECT_EQ(status("GET", "/v1/models", "client"), 200);
  EXPECT_EQ(status("GET", "/v1/models", "admin"), 200);
}

}  // namespace
}  // namespace tessera::testing
