// Tests the server end to end. Catches: routes that answer wrongly; streams whose text differs from the text of the
// unstreamed answer; requests that continue after their client has left; requests that are accepted without a key or
// during a shutdown; and requests that affect each other's results.
#include "tessera/server/server.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ServerTest, SmallRoutesAnswer) {
  const Running running(engine());
  EXPECT_EQ(running.ask(get("/health")).status, 200);
  EXPECT_EQ(running.ask(get("/health_generate")).status, 200);
  EXPECT_EQ(running.json(get("/v1/models")).find("data")->as_array()[0].find("id")->as_string(), "demo");
  EXPECT_EQ(running.json(get("/v1/models/demo")).find("max_model_len")->as_int(), 512);
  EXPECT_EQ(error_code(running.json(get("/v1/models/other"), 404)), "model_not_found");
  EXPECT_EQ(error_code(running.json(get("/v1/other"), 404)), "unknown_url");
  const Reply wrong_method = running.ask(get("/v1/completions"));
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_TRUE(wrong_method.has_line("Allow: POST")) << wrong_method.head;
  const Reply refused = running.ask(post("/v1/embeddings", R"({"model": "demo", "input": "a"})"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_THAT(refused.body, ::testing::HasSubstr("--is-embedding"));
  EXPECT_EQ(running.ask(post("/flush_cache", "")).status, 200);
  const Reply by_get = running.ask(get("/flush_cache"));  // refused, because any web page could send a GET
  EXPECT_EQ(by_get.status, 405);
  EXPECT_TRUE(by_get.has_line("Allow: POST")) << by_get.head;
  EXPECT_NE(running.json(get("/version")).find("version"), nullptr);
  EXPECT_EQ(running.json(get("/get_model_info")).find("vocab_size")->as_int(), 2048);
  const Json info = running.json(get("/get_server_info"));
  EXPECT_GE(info.find("stats")->find("steps")->as_int(), 1);
  EXPECT_EQ(info.find("plan")->find("decode_sizes")->dump(), "[1, 4]");
  EXPECT_EQ(info.find("options")->find("quantization")->as_string(), "none");
  const Json& start = *info.find("start");
  EXPECT_THAT(start.find("phases")->dump(), HasSubstr("\"compile\""));
  EXPECT_EQ(start.find("phases")->as_array().back().find("name")->as_string(), "server");
  EXPECT_EQ(start.find("phases")->as_array().back().find("end_s")->as_double(), start.find("total_s")->as_double());
  EXPECT_GT(start.find("first_token")->find("end_s")->as_double(), 0) << "/health_generate's";
  const Json tokens = running.json(post("/tokenize", R"({"prompt": "Once upon a time"})"));
  EXPECT_EQ(running.json(post("/detokenize", "{\"tokens\": " + tokens.find("tokens")->dump() + "}")).dump(),
            R"({"prompt": "Once upon a time"})");
}

TEST_F(ServerTest, EveryProtocolGivesTheSameGreedyText) {
  const Running running(engine());
  const std::string plain = text_of(running.json(completion(R"("prompt": "Once upon a time", "max_tokens": 24)")));
  EXPECT_FALSE(plain.empty());
  const Reply stream = running.ask(completion(R"("prompt": "Once upon a time", "max_tokens": 24, "stream": true)"));
  EXPECT_TRUE(stream.has_line("Content-Type: text/event-stream")) << stream.head;
  EXPECT_EQ(streamed_text(stream.body), plain);
  const Json generated = running.json(post("/generate", R"({"text": "Once upon a time", "return_logprob": true,
      "logprob_start_len": 0, "sampling_params": {"temperature": 0, "max_new_tokens": 24}})"));
  EXPECT_EQ(generated.find("text")->as_string(), plain);
  const Json& info = *generated.find("meta_info");
  EXPECT_EQ(std::ssize(info.find("input_token_logprobs")->as_array()), info.find("prompt_tokens")->as_int());
  EXPECT_EQ(std::ssize(info.find("output_token_logprobs")->as_array()), info.find("completion_tokens")->as_int());
}

TEST_F(ServerTest, ChatsEndAndCountTheirTokens) {
  const Running running(engine());
  const std::string messages =
      R"("model": "demo", "messages": [{"role": "user", "content": "Tell me about foxes."}], "temperature": 0)";
  const Json answer = running.json(post("/v1/chat/completions", "{" + messages + R"(, "max_tokens": 6})"));
  EXPECT_FALSE(choice(answer).find("message")->find("content")->as_string().empty());
  EXPECT_EQ(choice(answer).find("finish_reason")->as_string(), "length");
  EXPECT_EQ(answer.find("usage")->find("completion_tokens")->as_int(), 6);
  const Reply stream = running.ask(post("/v1/chat/completions", "{" + messages + R"(, "max_tokens": 6, "stream": true,
      "stream_options": {"include_usage": true}, "logprobs": true, "top_logprobs": 2})"));
  EXPECT_THAT(stream.body, HasSubstr(R"("delta":{"role":"assistant","content":""})"));
  EXPECT_THAT(stream.body, HasSubstr(R"("completion_tokens":6)"));
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServerTest, ConstrainedOutputFollowsItsGrammar) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const Running running(engine());
  const std::string schema = R"({"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"],
      "additionalProperties": false})";
  // Without the penalty, a small model writes only the white space that JSON allows.
  const std::string user = R"({"model": "demo", "messages": [{"role": "user", "content": "Once"}], "max_tokens": 200,
      "temperature": 0, "frequency_penalty": 2, )";
  const Json answer = running.json(post("/v1/chat/completions", user + R"("response_format": {"type": "json_schema",
      "json_schema": {"name": "s", "schema": )" + schema + "}}}"));
  const Result<Json> content = Json::parse(choice(answer).find("message")->find("content")->as_string(), "content");
  ASSERT_TRUE(content.ok()) << answer.dump();
  EXPECT_TRUE(content->find("x")->is_int());

  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters": )" + schema + "}}], ";
  for (const std::string tool_choice : {R"("required")", R"({"type": "function", "function": {"name": "f"}})"}) {
    const Json called = running.json(post("/v1/chat/completions", user + tools + R"("parallel_tool_calls": false,
        "tool_choice": )" + tool_choice + "}"));
    EXPECT_EQ(choice(called).find("finish_reason")->as_string(), "tool_calls") << called.dump();
    const Json* calls = choice(called).find("message")->find("tool_calls");
    ASSERT_TRUE(calls != nullptr && calls->as_array().size() == 1) << called.dump();
    const Json& function = *calls->as_array()[0].find("function");
    EXPECT_EQ(function.find("name")->as_string(), "f");
    EXPECT_TRUE(Json::parse(function.find("arguments")->as_string(), "arguments")->find("x")->is_int());
  }
  const Json refused = running.json(completion(R"("prompt": "a", "json_schema": {"type": "wrong"})"), 400);
  EXPECT_EQ(refused.find("error")->find("param")->as_string(), "json_schema");
}

TEST_F(ServerTest, AliasesAreAcceptedAndListed) {
  ServerOptions options;
  options.served_aliases = {"demo-alias"};
  const Running running(engine(), options);
  const Json::Array models = running.json(get("/v1/models")).find("data")->as_array();
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].find("id")->as_string(), "demo");
  EXPECT_EQ(models[1].find("id")->as_string(), "demo-alias");
  EXPECT_EQ(running.json(get("/v1/models/demo-alias")).find("id")->as_string(), "demo-alias");
  const Json answer =
      running.json(post("/v1/completions", R"({"model": "demo-alias", "prompt": "Once", "max_tokens": 1})"));
  EXPECT_EQ(answer.find("model")->as_string(), "demo");
  const Json refused = running.json(post("/v1/completions", R"({"model": "gpt", "prompt": "a"})"), 404);
  EXPECT_THAT(refused.find("error")->find("message")->as_string(), HasSubstr("\"demo\", \"demo-alias\""));
}

TEST_F(ServerTest, ChoicesWithASeedAreReproducible) {
  const Running running(engine());
  const std::string body =
      R"({"model": "demo", "prompt": "Once", "max_tokens": 8, "n": 3, "seed": 5, "temperature": 1})";
  const Json first = running.json(post("/v1/completions", body));
  const Json::Array& choices = first.find("choices")->as_array();
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_NE(choices[0].find("text")->as_string(), choices[1].find("text")->as_string());
  EXPECT_EQ(running.json(post("/v1/completions", body)).find("choices")->dump(), first.find("choices")->dump());
}

TEST_F(ServerTest, RefusalsAreErrorsInOpenAisForm) {
  const Running running(engine());
  EXPECT_EQ(error_code(running.json(completion(R"("prompt": "a", "n": 0)"), 400)), "invalid_value");
  EXPECT_EQ(error_code(running.json(completion(R"("prompt": "a", "max_tokens": 1000)"), 400)),
            "context_length_exceeded");
  EXPECT_EQ(error_code(running.json(post("/v1/completions", R"({"model": "gpt", "prompt": "a"})"), 404)),
            "model_not_found");
  EXPECT_EQ(
      running.json(completion(R"("prompt": "Once", "max_tokens": 400, "ignore_eos": true, "timeout_s": 1e-6)"), 408)
          .find("error")
          ->find("type")
          ->as_string(),
      "timeout_error");
}

TEST_F(ServerTest, AcceptsPlainAndCompressedJsonBodies) {
  const Running running(engine());
  const auto send = [&](const std::string& headers, const std::string& body) {
    return running.ask("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + headers +
                       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  };
  const std::string json = R"({"prompt": "Once"})";
  EXPECT_EQ(send("Content-Type: application/json\r\n", json).status, 200);
  EXPECT_EQ(send("", json).status, 200);
  const Reply form = send("Content-Type: application/x-www-form-urlencoded\r\n", json);
  EXPECT_EQ(form.status, 415);
  EXPECT_THAT(form.body, HasSubstr("unsupported_content_type"));
  // The headers of a Zstandard frame with one raw block of 18 bytes, the size of `json`.
  const std::string zstd("\x28\xb5\x2f\xfd\x20\x12\x91\x00\x00", 9);
  EXPECT_EQ(send("Content-Encoding: zstd\r\n", zstd + json).status, 200);
  EXPECT_EQ(send("Content-Encoding: gzip\r\n", json).status, 400);
  const Reply brotli = send("Content-Encoding: br\r\n", json);
  EXPECT_EQ(brotli.status, 415);
  EXPECT_TRUE(brotli.has_line("Accept-Encoding: gzip, deflate, zstd"));
}

TEST_F(ServerTest, MetricsCountAnswersAndTokens) {
  const Running running(engine());
  running.ask(completion(R"("prompt": "Once", "max_tokens": 5, "ignore_eos": true, "n": 2)"));
  running.ask(get("/no/such/path"));
  const Reply metrics = running.ask(get("/metrics"));
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.body, HasSubstr("sglang:time_to_first_token_seconds_count{model_name=\"demo\"} 2"));
  EXPECT_THAT(metrics.body, HasSubstr("sglang:inter_token_latency_seconds_count{model_name=\"demo\"} 8"));
  EXPECT_THAT(metrics.body, HasSubstr("/v1/completions"));
  EXPECT_THAT(metrics.body, Not(HasSubstr("/no/such/path")));
}

double sample_of(const Running& running, const std::string& sample) {
  const std::string metrics = running.ask(get("/metrics")).body;
  const std::size_t at = metrics.find("\n" + sample + " ");
  return at == metrics.npos ? -1 : std::stod(metrics.substr(at + sample.size() + 2));  // -1: the sample is absent
}

TEST_F(ServerTest, MetricsCountRequestsWithoutARoute) {
  ServerOptions options;
  options.http.max_body_bytes = 1000;
  const Running running(engine(), options);
  const auto count = [&](int status) {
    return sample_of(running, fmt::format(R"(tessera:http_requests_total{{route="other",status="{}"}})", status));
  };
  for (const int status : {400, 403, 404, 413, 431}) EXPECT_EQ(count(status), -1) << status;
  EXPECT_EQ(running.ask("no request\r\n\r\n").status, 400);
  EXPECT_EQ(running.ask(get("/health", "Origin: http://a\r\n")).status, 403);
  EXPECT_EQ(running.ask(get("/health", "Origin: http://b\r\n")).status, 403);
  EXPECT_EQ(running.ask(get("/nothing")).status, 404);
  EXPECT_EQ(running.ask(post("/tokenize", std::string(1001, ' '))).status, 413);
  EXPECT_EQ(running.ask(get("/", "A: " + std::string(20'000, 'a') + "\r\n")).status, 431);
  EXPECT_EQ(count(403), 2);
  for (const int status : {400, 404, 413, 431}) EXPECT_EQ(count(status), 1) << status;
}

TEST_F(ServerTest, ClientsThatLeaveAreCounted) {
  const Running running(engine());
  const auto aborted = [&] { return sample_of(running, R"(sglang:num_aborted_requests_total{model_name="demo"})"); };
  EXPECT_EQ(aborted(), 0);
  Client client(running.port);
  client.send(completion(R"("prompt": "Once", "n": 3, "max_tokens": 480, "ignore_eos": true, "stream": true)"));
  client.read_through("\n\n");
  client.abort();
  EXPECT_TRUE(eventually([&] { return aborted() == 3; })) << aborted();
}

TEST_F(ServerTest, MemoryGaugesShowTheCurrentState) {
  const Running running(engine());
  const auto used = [&] { return sample_of(running, R"(tessera:kv_cache_bytes{group="0",state="used"})"); };
  const auto share = [&] { return sample_of(running, R"(sglang:token_usage{model_name="demo"})"); };
  EXPECT_EQ(used(), 0);
  Client client(running.port);
  client.send(completion(R"("prompt": "Once", "n": 3, "max_tokens": 480, "ignore_eos": true, "stream": true)"));
  client.read_through("\n\n");
  EXPECT_GT(used(), 0);
  client.abort();
  EXPECT_TRUE(eventually([&] { return used() == 0 && share() == 0; })) << used();
}

TEST_F(ServerTest, EveryRouteButHealthNeedsTheKey) {
  ServerOptions options;
  options.api_keys = {"secret", "another"};
  const Running running(engine(), options);
  EXPECT_EQ(running.ask(get("/health")).status, 200);
  EXPECT_EQ(running.ask(get("/v1/models")).status, 401);
  EXPECT_EQ(running.ask(get("/nothing")).status, 401);
  EXPECT_EQ(running.ask(get("/v1/models", "Authorization: Bearer wrong\r\n")).status, 401);
  EXPECT_EQ(running.ask(get("/v1/models", "Authorization: Bearer secret\r\n")).status, 200);
  EXPECT_EQ(running.ask(get("/v1/models", "Authorization: Bearer another\r\n")).status, 200);
  for (const char* route : {"/get_server_info", "/engine_state", "/metrics"}) {
    const Reply reply = running.ask(get(route, "Authorization: Bearer secret\r\n"));
    EXPECT_EQ(reply.status, 200);
    EXPECT_THAT(reply.body, Not(HasSubstr("another"))) << route;
  }
}

TEST_F(ServerTest, TheRequestsOfAClientThatLeavesAreCancelled) {
  const Running running(engine());
  const std::int64_t before = stat(running, "output_tokens");
  Client client(running.port);
  client.send(completion(R"("prompt": "Once", "n": 3, "max_tokens": 480, "ignore_eos": true, "stream": true)"));
  EXPECT_THAT(client.read_through("\n\n"), HasSubstr("200"));
  client.abort();
  EXPECT_TRUE(eventually([&] { return stat(running, "running") == 0; }));
  EXPECT_LT(stat(running, "output_tokens") - before, 3 * 480);
  EXPECT_EQ(running.ask(get("/health_generate")).status, 200);
}

TEST_F(ServerTest, ALargeBodyDoesNotDelayOthers) {
  const Running running(engine());
  Client slow(running.port);
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "Once upon a time ";
  slow.send(post("/tokenize", R"({"prompt": ")" + text + "\"}"));
  auto slow_end = std::async(std::launch::async, [&] {
    EXPECT_EQ(slow.read_reply().status, 200);
    return std::chrono::steady_clock::now();
  });
  EXPECT_EQ(running.ask(get("/health")).status, 200);
  const auto health_end = std::chrono::steady_clock::now();
  EXPECT_LT(health_end, slow_end.get());
}

TEST(Server, AFullQueueRefusesWith429AndServesLater) {
  EngineOptions options;
  options.max_queued_requests = 2;
  const std::unique_ptr<Engine> engine = make_engine(options);
  const Running running(*engine);
  const Reply refused = running.ask(completion(R"("prompt": "Once", "n": 100, "max_tokens": 400, "ignore_eos": true)"));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  EXPECT_TRUE(eventually([&] { return stat(running, "running") == 0; }));
  EXPECT_EQ(running.ask(completion(R"("prompt": "Once", "max_tokens": 4)")).status, 200);
}

TEST(Server, HealthGenerateIsAnsweredAheadOfAFullQueue) {
  EngineOptions options;
  options.max_queued_requests = 2;
  const std::unique_ptr<Engine> engine = make_engine(options);
  const Running running(*engine);
  Client busy(running.port);
  busy.send(completion(R"("prompt": "Once", "n": 10, "max_tokens": 480, "ignore_eos": true, "stream": true)"));
  EXPECT_THAT(busy.read_through("\n\n"), HasSubstr("200"));
  EXPECT_EQ(stat(running, "queued"), 2);
  EXPECT_EQ(running.ask(completion(R"("prompt": "Once", "max_tokens": 1)")).status, 429);
  EXPECT_EQ(running.ask(get("/health_generate")).status, 200);
  EXPECT_GT(stat(running, "queued"), 0) << "the others still wait";
  busy.abort();
  EXPECT_TRUE(eventually([&] { return stat(running, "running") == 0; }));
}

// The bundled model's template has neither tools nor the role "tool".
TEST_F(ServerTest, ToolsOfUnknownFormatAreServedWithANote) {
  const Running running(engine());
  EXPECT_EQ(running.json(get("/get_server_info")).find("tool_call_parser")->as_string(), "generic");
  // Even if a flag asks for a format, the format is not used with a template that shows no tools.
  EXPECT_EQ(Running(engine(), {.tool_call_parser = "llama3"})
                .json(get("/get_model_info"))
                .find("tool_call_parser")
                ->as_string(),
            "generic");
  const std::string body = R"({"model": "demo", "messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f",
       "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "a", "content": "ok"}], "max_tokens": 3,
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "stream": )";
  for (const char* stream : {"false}", "true}"}) {
    const Reply reply = running.ask(post("/v1/chat/completions", body + stream));
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_THAT(reply.head, HasSubstr("\r\nX-Tessera-Note: the form of this model's tool calls is not known, "));
  }
  const Reply plain =
      running.ask(post("/v1/chat/completions",
                       R"({"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3})"));
  EXPECT_THAT(plain.head, Not(HasSubstr("X-Tessera-Note")));
}

TEST_F(ServerTest, WrongOptionsSayWhatIsAccepted) {
  const auto message = [&](ServerOptions options) {
    options.http.port = 0;
    const Result<std::unique_ptr<Server>> server = Server::create(std::move(options), engine());
    return server.ok() ? "none" : server.status().message();
  };
  ServerOptions options;
  options.tool_call_parser = "magic";
  EXPECT_THAT(message(options), HasSubstr("--tool-call-parser is \"magic\"; accepted: "));
  options = {};
  options.reasoning_parser = "magic";
  EXPECT_THAT(message(options), HasSubstr("--reasoning-parser is \"magic\"; accepted: "));
  options = {};
  options.metrics_style = "magic";
  EXPECT_THAT(message(options), HasSubstr("magic"));
  options = {};
  options.chat_template = "/no/such/file";
  EXPECT_THAT(message(options), HasSubstr("--chat-template: cannot open /no/such/file"));
  options.chat_template = "{% if %}";
  EXPECT_THAT(message(options), HasSubstr("--chat-template: line 1"));
}

}  // namespace
}  // namespace tessera::testing
