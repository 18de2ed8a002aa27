// Catches: requests in Ollama's form that become wrong requests for the engine, and wrong fields that no error names.
#include "tessera/server/ollama/ollama_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/ollama/ollama_embed.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class OllamaRequest : public ::testing::Test {
 protected:
  Request chat(const std::string& members) const {
    ApiResult<ApiJob> job = prepare_ollama_chat(model, "{\"model\": \"demo\", " + members + "}");
    EXPECT_TRUE(job.ok()) << job.error().message;
    return job.ok() && !job->requests.empty() ? job->requests[0] : Request();
  }
  std::string prompt_of(const std::string& members) const { return demo_text(chat(members)); }
  std::string generated(const std::string& members) const {
    ApiResult<ApiJob> job = prepare_ollama_generate(model, "{\"model\": \"demo\", " + members + "}");
    EXPECT_TRUE(job.ok()) << job.error().message;
    return job.ok() ? demo_text(job->requests[0]) : "";
  }
  ApiError chat_error(const std::string& members) const {
    ApiResult<ApiJob> job = prepare_ollama_chat(model, "{" + members + "}");
    EXPECT_FALSE(job.ok()) << members;
    return job.ok() ? ApiError() : job.error();
  }
  static std::string demo_text(const Request& request) {
    return test::demo_tokenizer().decode(request.prompt, /*skip_special=*/false);
  }

  static constexpr const char* kHello = R"("messages": [{"role": "user", "content": "Hello"}])";
  ServedModel model = test::test_model();
};

TEST_F(OllamaRequest, OptionsSetWhatTheyName) {
  const Request request = chat(std::string(kHello) + R"(, "options": {"temperature": 0.5, "top_k": 7, "top_p": 0.25,
      "min_p": 0.125, "seed": 3, "stop": ["x", "y"], "repeat_penalty": 1.5, "presence_penalty": 1,
      "frequency_penalty": -1, "num_predict": 9, "num_ctx": 99999, "num_gpu": 1})");
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.sampling.min_p, 0.125);
  EXPECT_EQ(request.sampling.seed, 3);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(request.sampling.presence_penalty, 1);
  EXPECT_EQ(request.sampling.frequency_penalty, -1);
  EXPECT_THAT(request.stop.texts, ::testing::ElementsAre("x", "y"));
  EXPECT_EQ(request.stop.max_new_tokens, 9);
}

TEST_F(OllamaRequest, WithoutALimitTheContextIsFilled) {
  for (const char* predict : {"-1", "-2", "0"}) {
    const Request request = chat(std::string(kHello) + R"(, "options": {"num_predict": )" + predict + "}");
    EXPECT_EQ(request.stop.max_new_tokens, model.context_length - std::ssize(request.prompt));
  }
  EXPECT_GE(*chat(std::string(kHello) + R"(, "options": {"seed": -1})").sampling.seed, 0);
}

TEST_F(OllamaRequest, MessagesAreRenderedWithCallsAndResults) {
  EXPECT_EQ(prompt_of(R"("messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 5}}}]},
      {"role": "tool", "content": "r", "tool_name": "f"}])"),
            "system:s;user:u;assistant:;f(5);tool:r;assistant:");
  EXPECT_EQ(prompt_of(R"("messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "It is"}])"),
            "user:u;assistant:It is")
      << "the model goes on";
  EXPECT_EQ(
      prompt_of(
          R"("messages": [{"role": "tool", "content": "r", "tool_name": "f"}, {"role": "user", "content": "u"}])"),
      "tool:r;user:u;assistant:")
      << "clients shorten a history so that its call is gone";
}

TEST_F(OllamaRequest, PromptsAreRenderedOrRaw) {
  EXPECT_EQ(generated(R"("prompt": "u", "system": "s")"), "system:s;user:u;assistant:");
  EXPECT_EQ(generated(R"("prompt": "u", "raw": true)"), "u");
  model.chat.reset();
  EXPECT_EQ(generated(R"("prompt": "u")"), "u");
  ApiResult<ApiJob> refused = prepare_ollama_generate(model, R"({"model": "demo", "prompt": "u", "system": "s"})");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().param, "system");
}

TEST_F(OllamaRequest, ThinkingFollowsTheTemplate) {
  EXPECT_THAT(prompt_of(std::string(kHello) + R"(, "think": false)"), HasSubstr("<think></think>"));
  EXPECT_THAT(chat_error(R"("model": "demo", "think": true, )" + std::string(kHello)).message,
              HasSubstr("\"demo\" does not support thinking"));
  model.reasoning_parser = "qwen3";
  EXPECT_THAT(prompt_of(std::string(kHello) + R"(, "think": true)"), Not(HasSubstr("<think>")));
  EXPECT_EQ(prompt_of(std::string(kHello) + R"(, "think": "high")"), prompt_of(kHello));
  EXPECT_EQ(chat_error(R"("model": "demo", "think": "deep", )" + std::string(kHello)).param, "think");
}

TEST_F(OllamaRequest, ARequestWithoutTextAsksForTheModel) {
  for (const char* body : {R"({"model": "demo"})", R"({"model": "demo", "messages": [], "keep_alive": 0})"}) {
    ApiResult<ApiJob> job = prepare_ollama_chat(model, body);
    ASSERT_TRUE(job.ok());
    EXPECT_TRUE(job->requests.empty());
    EXPECT_THAT(job->answer->last_events(), HasSubstr(R"("done":true,"done_reason":"load"})"));
  }
  ApiResult<ApiJob> generate = prepare_ollama_generate(model, R"({"model": "demo", "prompt": ""})");
  ASSERT_TRUE(generate.ok());
  EXPECT_TRUE(generate->requests.empty());
}

TEST_F(OllamaRequest, NamesMayHaveTheTagLatest) {
  EXPECT_TRUE(prepare_ollama_chat(model, R"({"model": "demo:latest"})").ok());
  EXPECT_EQ(chat_error(R"("model": "other:latest")").http_status, 404);
  EXPECT_EQ(chat_error(R"("model": "demo:8b")").http_status, 404);
  EXPECT_EQ(chat_error(R"("messages": [])").http_status, 400);
  EXPECT_EQ(chat_error(R"("model": "")").param, "model");
}

TEST_F(OllamaRequest, MistakesAreNamedByTheirPath) {
  const auto param = [&](const std::string& members) { return chat_error("\"model\": \"demo\", " + members).param; };
  EXPECT_EQ(param(R"("messages": "Hello")"), "messages");
  EXPECT_EQ(param(R"("messages": [5])"), "messages[0]");
  EXPECT_EQ(param(R"("messages": [{"role": "boss", "content": "a"}])"), "messages[0].role");
  EXPECT_EQ(param(R"("messages": [{"role": "user", "content": ["a"]}])"), "messages[0].content");
  EXPECT_EQ(param(R"("messages": [{"role": "user", "content": "a", "images": ["QQ=="]}])"), "messages[0].images");
  EXPECT_EQ(param(R"("messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 5}}]}])"),
            "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": 5)"), "options");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": {"temperature": "hot"})"), "options.temperature");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": {"repeat_penalty": 0})"), "options.repeat_penalty");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": {"num_predict": -3})"), "options.num_predict");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": {"mirostat": 1})"), "options.mirostat");
  EXPECT_EQ(param(std::string(kHello) + R"(, "option": {})"), "option");
  EXPECT_EQ(param(std::string(kHello) + R"(, "format": "xml")"), "format");
  EXPECT_EQ(param(std::string(kHello) + R"(, "tools": [{"function": {}}])"), "tools[0].function.name");
  EXPECT_EQ(param(std::string(kHello) + R"(, "options": {"num_predict": 9999})"), "messages");
}

TEST_F(OllamaRequest, LongTextsAreCutUnlessTruncateIsFalse) {
  model.embedding = EmbeddingConfig();
  std::string text;
  for (std::int64_t i = 0; i < model.context_length + 10; ++i) text += " a";
  const auto embed = [&](const std::string& members) {
    return prepare_ollama_embed(model, R"({"model": "demo", "input": ")" + text + "\"" + members + "}");
  };
  ApiResult<ApiJob> cut = embed("");
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(std::ssize(cut->requests[0].prompt), model.context_length);
  ApiResult<ApiJob> whole = embed(R"(, "truncate": false)");
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.error().code, "context_length_exceeded");
}

}  // namespace
}  // namespace tessera
