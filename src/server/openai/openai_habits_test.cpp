// Clients and gateways rely on details of how OpenAI's server behaves. Catches wrong behaviour in these details: the
// model's name in a request; the field system_fingerprint; a token limit of 0; the limits of the field metadata; the
// answer to a path with a missing or superfluous /v1.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "tessera/base/log.h"
#include "tessera/server/anthropic/messages_request.h"
#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/completion_request.h"
#include "tessera/server/openai/generate_request.h"
#include "tessera/server/server_test_util.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using namespace testing;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kChat = R"({"model": "demo", "messages": [{"role": "user", "content": "a"}], )";

template <class Prepare>
std::string refused_field(const Prepare& prepare, const std::string& body) {
  const auto job = prepare(test::test_model(), body);
  if (job.ok()) return "none";
  EXPECT_EQ(job.error().http_status, 400) << body;
  return job.error().param;
}

TEST(OpenAiHabits, ChatsAndCompletionsMustAskForTokens) {
  const auto chat = [](const std::string& members) { return refused_field(prepare_chat, kChat + members + "}"); };
  EXPECT_EQ(chat(R"("max_tokens": 0)"), "max_tokens");
  EXPECT_EQ(chat(R"("max_completion_tokens": 0)"), "max_completion_tokens");
  EXPECT_EQ(chat(R"("max_tokens": 1)"), "none");
  const auto text = [](const std::string& members) {
    return refused_field(prepare_completion, R"({"prompt": "a", )" + members + "}");
  };
  EXPECT_EQ(text(R"("max_tokens": 0)"), "max_tokens");
  EXPECT_EQ(text(R"("max_tokens": 0, "logprobs": 1)"), "max_tokens");
  EXPECT_EQ(text(R"("max_tokens": 0, "echo": true)"), "none");
  EXPECT_EQ(text(R"("max_tokens": 0, "prompt_logprobs": 1)"), "none");
  EXPECT_EQ(refused_field(prepare_generate, R"({"text": "a", "sampling_params": {"max_new_tokens": 0}})"), "none");
}

TEST(OpenAiHabits, MetadataIsLimited) {
  const auto with = [](const std::string& metadata) {
    return refused_field(prepare_chat, kChat + ("\"metadata\": " + metadata) + "}");
  };
  const auto pairs = [](int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += fmt::format("{}\"{}\": \"v\"", i == 0 ? "" : ", ", i);
    return "{" + all + "}";
  };
  const auto one = [](std::size_t key, std::size_t value) {
    std::string text;
    for (std::size_t i = 0; i < value; ++i) text += "ä";
    return fmt::format("{{\"{}\": \"{}\"}}", std::string(key, 'k'), text);
  };
  for (const std::string& good : {pairs(0), pairs(16), one(64, 512)}) EXPECT_EQ(with(good), "none") << good;
  for (const std::string& bad : {pairs(17), one(65, 1), std::string("[]")}) EXPECT_EQ(with(bad), "metadata") << bad;
  EXPECT_EQ(with(one(1, 513)), "metadata.k");
  EXPECT_EQ(with(R"({"a": 1})"), "metadata.a");

  const auto message = [](const std::string& metadata) {
    return refused_field(prepare_messages,
                         R"({"max_tokens": 4, "metadata": )" + metadata + ", " + (kChat + 1) + R"("stream": false})");
  };
  const std::string wide = fmt::format(R"({{"user_id": "{}"}})", std::string(16384, 'i'));
  for (const std::string& good : {pairs(64), std::string(R"({"user_id": null})"), one(65, 4000)})
    EXPECT_EQ(message(good), "none") << good;
  for (const std::string& bad : {pairs(65), wide, std::string("[]")}) EXPECT_EQ(message(bad), "metadata") << bad;
}

TEST(OpenAiHabits, ATooLongChatExceedsTheContext) {
  const ServedModel model = test::test_model();
  const std::string text(std::size_t{17} << 20, 'a');
  const ApiResult<ApiJob> job =
      prepare_chat(model, R"({"messages": [{"role": "user", "content": ")" + text + R"("}]})");
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().code, "context_length_exceeded");
  EXPECT_THAT(job.error().message, AllOf(StartsWith("This model's maximum context length is 256 tokens. However, "),
                                         HasSubstr("at most 16777216"), Not(HasSubstr("TemplateLimits"))));
  // If a request's own template exceeds its work limit, the request is at fault.
  const ApiResult<ApiJob> own = prepare_chat(model, R"({"messages": [{"role": "user", "content": "a"}], "chat_template":
          "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}x{% endfor %}{% endfor %}{% endfor %}"})");
  ASSERT_FALSE(own.ok());
  EXPECT_NE(own.error().code, "context_length_exceeded");
  EXPECT_EQ(own.error().param, "chat_template");
}

class OpenAiHabitsServer : public ServerTest {};

TEST_F(OpenAiHabitsServer, AnswersHaveOneFingerprint) {
  const auto fingerprint = [](const Json& answer) { return answer.find("system_fingerprint")->as_string(); };
  std::string first;
  {
    const Running running(engine());
    const Json chat = running.json(post("/v1/chat/completions", std::string(kChat) + R"("max_tokens": 2})"));
    first = fingerprint(chat);
    EXPECT_THAT(first, ::testing::MatchesRegex("fp_[0-9a-f]{12}"));
    EXPECT_EQ(fingerprint(running.json(completion(R"("prompt": "a", "max_tokens": 2)"))), first);
    const std::string stream = running.ask(completion(R"("prompt": "a", "max_tokens": 2, "stream": true)")).body;
    EXPECT_THAT(stream, HasSubstr("\"system_fingerprint\":\"" + first + "\""));
    const Json& message = *choice(chat).find("message");
    EXPECT_EQ(message.find("annotations")->dump(), "[]");
    EXPECT_TRUE(message.find("refusal")->is_null());
  }
  EXPECT_EQ(fingerprint(Running(engine()).json(completion(R"("prompt": "a", "max_tokens": 1)"))), first);
  const Running other(engine(), {.reasoning_parser = "qwen3"});
  EXPECT_NE(fingerprint(other.json(completion(R"("prompt": "a", "max_tokens": 1)"))), first);
}

TEST_F(OpenAiHabitsServer, BadWordsThatLeaveAGrammarNothingGet400) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  const Running running(engine());
  const auto error = [&](const std::string& body) {
    return running.json(body, 400).find("error")->find("message")->as_string();
  };
  const std::string members = R"("regex": "x", "bad_words": ["x"], "max_tokens": 4})";
  EXPECT_THAT(error(completion(R"("prompt": "a", )" + members.substr(0, members.size() - 1))),
              HasSubstr("no token is left to be chosen as output token 0: the grammar"));
  EXPECT_THAT(error(post("/v1/chat/completions", kChat + members)), HasSubstr("bad_words"));
  const Json allowed = running.json(completion(R"("prompt": "a", "regex": "[xy]", "bad_words": ["x"])"));
  EXPECT_EQ(choice(allowed).find("text")->as_string(), "y");
}

TEST_F(OpenAiHabitsServer, OpenAisRoutesNeedTheModelsName) {
  const Running running(engine());
  const auto field_of = [](const Json& error) { return error.find("error")->find("param")->as_string(); };
  for (const auto& [path, body] :
       {std::pair{"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"},
        std::pair{"/v1/completions", R"({"prompt": "a"})"},
        std::pair{"/v1/completions", R"({"prompt": "a", "model": null})"},
        std::pair{"/v1/embeddings", R"({"input": "a"})"}}) {
    const Json refused = running.json(post(path, body), 400);
    EXPECT_EQ(field_of(refused), "model") << path;
    EXPECT_THAT(refused.find("error")->find("message")->as_string(), HasSubstr("missing; accepted: \"demo\"")) << path;
  }
}

TEST_F(OpenAiHabitsServer, GenerateAcceptsTheNamesThatGatewaysSend) {
  const Running running(engine());
  const auto status = [&](const std::string& member) {
    return running.ask(post("/generate", R"({"text": "a", "sampling_params": {"max_new_tokens": 1})" + member + "}"))
        .status;
  };
  EXPECT_EQ(status(""), 200);
  EXPECT_EQ(status(R"(, "model": "demo")"), 200);
  EXPECT_EQ(status(R"(, "model": "unknown")"), 200);
  EXPECT_EQ(status(R"(, "model": "gpt")"), 404);
  EXPECT_EQ(status(R"(, "model": 5)"), 400);
}

TEST_F(OpenAiHabitsServer, APathUnderAnotherBaseGetsAHint) {
  const Running running(engine());
  const auto said = [&](const std::string& request) {
    return running.json(request, 404).find("error")->find("message")->as_string();
  };
  EXPECT_EQ(said(post("/chat/completions", "{}")),
            "there is nothing at /chat/completions; did you mean /v1/chat/completions?");
  for (const char* path : {"/completions", "/embeddings"})
    EXPECT_THAT(said(post(path, "{}")), HasSubstr(fmt::format("did you mean /v1{}?", path)));
  EXPECT_THAT(said(get("/models")), HasSubstr("did you mean /v1/models?"));
  EXPECT_THAT(said(post("/v1/v1/completions", "{}")), HasSubstr("did you mean /v1/completions?"));
  EXPECT_THAT(said(post("/v1/generate", "{}")), HasSubstr("did you mean /generate?"));
  EXPECT_EQ(said(get("/v1/")), "there is nothing at /v1/");
  EXPECT_EQ(said(get("/nothing")), "there is nothing at /nothing");
}

TEST_F(OpenAiHabitsServer, RequestLogsAreWrittenAtTheDefaultLevel) {
  const auto lines = [](const std::string& level) {
    EXPECT_TRUE(set_log_level(level).ok());
    ::testing::internal::CaptureStderr();
    {
      const Running running(engine(), {.log_requests = true});
      running.ask(get("/v1/models"));
    }
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(lines("server=warn"), HasSubstr("server: GET /v1/models 200"));
  EXPECT_THAT(lines("server=off"), Not(HasSubstr("/v1/models")));
  EXPECT_TRUE(set_log_level("server=warn").ok());
}

TEST_F(OpenAiHabitsServer, ChatsWarnOnceOfUnknownToolFormats) {
  const auto warnings = [](const std::vector<Engine*>& engines) {
    ::testing::internal::CaptureStderr();
    { const Running running(engines); }
    const std::string said = ::testing::internal::GetCapturedStderr();
    int count = 0;
    for (std::size_t at = 0; (at = said.find("the form of this model's tool calls", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  const std::unique_ptr<Engine> second = make_engine();
  EXPECT_EQ(warnings({&engine(), second.get()}), 1);
  const std::unique_ptr<Engine> embeds = make_engine({.is_embedding = true});
  EXPECT_EQ(warnings({embeds.get()}), 0);
}

}  // namespace
}  // namespace tessera
