// Tests Ollama's routes end to end. Catches: routes that answer wrongly, or whose errors have another protocol's form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tessera/server/server_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

using OllamaServer = ServerTest;

TEST_F(OllamaServer, StreamAndWholeAnswerHaveTheSameText) {
  const Running running(engine());
  const std::string request =
      R"({"model": "demo", "raw": true, "prompt": "Once upon a time", "options": {"temperature": 0, "num_predict": 8})";
  const Json whole = running.json(post("/api/generate", request + R"(, "stream": false})"));
  const std::string text = whole.find("response")->as_string();
  EXPECT_EQ(text, text_of(running.json(completion(R"("prompt": "Once upon a time", "max_tokens": 8)"))));
  EXPECT_EQ(whole.find("done_reason")->as_string(), "length");
  EXPECT_GT(whole.find("total_duration")->as_int(), whole.find("eval_duration")->as_int());
  const Reply stream = running.ask(post("/api/generate", request + "}"));
  EXPECT_TRUE(stream.has_line("Content-Type: application/x-ndjson")) << stream.head;
  std::istringstream lines(stream.body);
  std::string streamed;
  for (std::string line; std::getline(lines, line);)
    streamed += Json::parse(line, "line")->find("response")->as_string();
  EXPECT_EQ(streamed, text);
}

TEST_F(OllamaServer, ChatsAnswerAndEmptyOnesLoadAtOnce) {
  const Running running(engine());
  const Json answer =
      running.json(post("/api/chat", R"({"model": "demo", "stream": false, "options": {"num_predict": 4},
      "messages": [{"role": "user", "content": "Hi"}]})"));
  EXPECT_FALSE(answer.find("message")->find("content")->as_string().empty());
  EXPECT_EQ(answer.find("eval_count")->as_int(), 4);
  for (const char* stream : {"true", "false"}) {
    const Reply load = running.ask(post("/api/chat", std::string(R"({"model": "demo", "stream": )") + stream + "}"));
    EXPECT_EQ(load.status, 200);
    EXPECT_THAT(load.body, HasSubstr("\"done_reason\":\"load\""));
  }
}

TEST_F(OllamaServer, FormatsConstrainTheAnswer) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const Running running(engine());
  const Json answer = running.json(post("/api/chat", R"({"model": "demo", "stream": false,
      "options": {"num_predict": 200, "temperature": 0, "frequency_penalty": 2},
      "messages": [{"role": "user", "content": "Once"}],
      "format": {"type": "object", "properties": {"x": {"enum": [1, 2]}}, "required": ["x"],
                 "additionalProperties": false}})"));
  const Result<Json> content = Json::parse(answer.find("message")->find("content")->as_string(), "content");
  ASSERT_TRUE(content.ok()) << answer.dump();
  EXPECT_TRUE(content->find("x")->is_int());
}

TEST_F(OllamaServer, SmallRoutesAnswer) {
  const Running running(engine());
  EXPECT_EQ(running.json(get("/api/tags")).find("models")->as_array()[0].find("name")->as_string(), "demo");
  EXPECT_GT(running.json(get("/api/ps")).find("models")->as_array()[0].find("size_vram")->as_int(), 0);
  EXPECT_NE(running.json(get("/api/version")).find("version"), nullptr);
  const Json show = running.json(post("/api/show", R"({"model": "demo"})"));
  EXPECT_GT(show.find("model_info")->find("general.parameter_count")->as_int(), 0);
  const Reply root = running.ask(get("/"));
  EXPECT_EQ(root.body, "Ollama is running");
  Client client(running.port);
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_reply(/*head_only=*/true).status, 200);
  EXPECT_THAT(running.ask(get("/", "Accept: text/html\r\n")).body, StartsWith("<!doctype html>"));
}

TEST_F(OllamaServer, ErrorsAreTextsWhereverTheyAreMade) {
  ServerOptions options;
  options.api_keys = {"k"};
  options.http.max_body_bytes = 1000;
  const auto error = [](const Running& running, const std::string& request, int status) {
    const Json answer = running.json(request, status);
    const Json* text = answer.find("error");
    EXPECT_TRUE(text != nullptr && text->is_string()) << answer.dump();
    return text != nullptr && text->is_string() ? text->as_string() : "";
  };
  {
    const Running closed(engine(), options);  // ends before the next server starts, because both use one engine
    EXPECT_THAT(error(closed, get("/api/tags"), 401), HasSubstr("API key"));
  }
  const Running running(engine(), {.http = {.max_body_bytes = 1000}});
  EXPECT_THAT(error(running, get("/api/chat"), 405), HasSubstr("POST"));
  EXPECT_THAT(error(running, post("/api/pull", "{}"), 404), HasSubstr("/api/pull"));
  EXPECT_THAT(error(running, post("/api/chat", std::string(2000, ' ')), 413), HasSubstr("1000 bytes"));
  EXPECT_THAT(error(running, post("/api/chat", "{"), 400), HasSubstr("JSON"));
  EXPECT_THAT(error(running, post("/api/chat", R"({"model": "other"})"), 404), HasSubstr("other"));
  EXPECT_THAT(error(running, post("/api/embed", R"({"model": "demo", "input": "a"})"), 400),
              HasSubstr("--is-embedding"));
}

}  // namespace
}  // namespace tessera::testing
