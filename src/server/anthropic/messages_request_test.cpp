// Catches: members of a Messages request that do not reach the engine or the prompt; turns that the template sees in
// the wrong order or form; and a prompt that changes with parts of the request that must not reach it, such as the
// billing line at the start of the system text.
#include "tessera/server/anthropic/messages_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/anthropic/thinking_signature.h"
#include "tessera/server/images/vision_test_model.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using test::test_model;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ServedModel tool_model() {
  ServedModel model = test_model();
  model.tool_call_parser = "hermes";
  return model;
}

ApiJob prepared(const std::string& members, const ServedModel& model = tool_model()) {
  ApiResult<ApiJob> job = prepare_messages(model, R"({"model": "claude", "max_tokens": 9, )" + members + "}");
  EXPECT_TRUE(job.ok()) << members << "\n" << job.error().message;
  return job.ok() ? *std::move(job) : ApiJob{.requests = std::vector<Request>(1)};
}

std::string prompt_of(const std::string& members, const ServedModel& model = tool_model()) {
  return model.tokenizer->decode(prepared(members, model).requests[0].prompt, /*skip_special=*/false);
}

constexpr const char* kAskedOnce = R"("messages": [{"role": "user", "content": "a"}])";
constexpr const char* kFunction = R"({"name": "f", "description": "d", "input_schema": {"type": "object"}})";

TEST(MessagesRequest, FieldsReachTheEngine) {
  const ApiJob job = prepared(std::string(kAskedOnce) + R"(, "temperature": 0.5, "top_k": 7, "top_p": 0.25, "seed": 3,
      "stop_sequences": ["x", "y"], "stream": true, "metadata": {"user_id": "{\"a\": 1}"}, "service_tier": "auto")");
  ASSERT_THAT(job.requests, SizeIs(1));
  const Request& request = job.requests[0];
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.25);
  EXPECT_EQ(request.sampling.seed, 3);
  EXPECT_EQ(request.stop.max_new_tokens, 9);
  EXPECT_THAT(request.stop.texts, ElementsAre("x", "y"));
  EXPECT_TRUE(job.stream);
  EXPECT_TRUE(job.id.starts_with("msg_"));
}

TEST(MessagesRequest, TurnsAreRenderedInOrder) {
  EXPECT_EQ(prompt_of(R"("system": [{"type": "text", "text": "s"}, {"type": "text", "text": "t", "cache_control":
      {"type": "ephemeral"}}], "messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
      {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c"}, {"role": "user", "content": "d"}],
      "thinking": {"type": "adaptive"})"),
            "system:s\nt;user:a\nb;assistant:c;user:d;assistant:");
}

TEST(MessagesRequest, ABillingLineDoesNotChangeThePrompt) {
  const std::string plain = prompt_of(std::string(kAskedOnce) + R"(, "system": "s")");
  for (const char* system :
       {R"([{"type": "text", "text": "x-anthropic-billing-header: cch=1; nonce"}, {"type": "text", "text": "s"}])",
        R"([{"type": "text", "text": "x-anthropic-billing-header: cch=2\ns"}])",
        R"("x-anthropic-billing-header: cch=3\ns")"}) {
    EXPECT_EQ(prompt_of(std::string(kAskedOnce) + ", \"system\": " + system), plain) << system;
  }
  EXPECT_THAT(prompt_of(std::string(kAskedOnce) + R"(, "system": [{"type": "text", "text": "s"},
      {"type": "text", "text": "x-anthropic-billing-header"}])"),
              HasSubstr("billing"))
      << "only the first block";
}

TEST(MessagesRequest, CallsAndResultsBecomeTurns) {
  const std::string prompt = prompt_of(std::string(R"("tools": [)") + kFunction + R"(], "messages": [
      {"role": "user", "content": "a"},
      {"role": "assistant", "content": [{"type": "text", "text": "b"},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 5}},
        {"type": "tool_use", "id": "toolu_2", "name": "f", "input": {"x": 6}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "c"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": true,
         "content": [{"type": "text", "text": "e"}, {"type": "text", "text": "f"}]},
        {"type": "text", "text": "g", "cache_control": {"type": "ephemeral"}}]}], "thinking": {"type": "adaptive"})");
  EXPECT_EQ(prompt, "<tools>user:a;assistant:b;f(5);f(6);tool:c;tool:Error: e\nf;user:g;assistant:");
}

TEST(MessagesRequest, IdsOfCallsFitMistralsTemplates) {
  ServedModel model = tool_model();
  model.chat = *ChatTemplate::parse(
      "{% for m in messages %}{% for c in m.tool_calls %}{% if c.id | length != 9 %}{{ raise_exception('ids have 9 "
      "characters') }}{% endif %}{{ c.id }}{% endfor %}{% if m.role == 'tool' %}={{ m.tool_call_id }};{% endif %}"
      "{% endfor %}");
  const std::string prompt = prompt_of(R"("messages": [{"role": "assistant", "content": [
      {"type": "tool_use", "id": "toolu_0123456789abcdef", "name": "f", "input": {}}]}, {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "toolu_0123456789abcdef"}]}])",
                                       model);
  ASSERT_THAT(prompt, SizeIs(20));
  EXPECT_EQ(prompt.substr(0, 9), prompt.substr(10, 9));
}

TEST(MessagesRequest, TracesOfAnthropicsServersAreNotShown) {
  EXPECT_EQ(prompt_of(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
      {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
      {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
      {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}],
      "thinking": {"type": "adaptive"})"),
            "user:a;assistant:b;user:c;assistant:");
}

TEST(MessagesRequest, DocumentsAreTexts) {
  EXPECT_EQ(prompt_of(R"("messages": [{"role": "user", "content": [
      {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
      {"type": "search_result", "source": "u", "title": "v", "content": [{"type": "text", "text": "y"}]}]}],
      "thinking": {"type": "adaptive"})"),
            "user:title: t\nx\ntitle: v\nsource: u\ny;assistant:");
}

TEST(MessagesRequest, ADeferredToolIsShownWhereItIsReferenced) {
  const std::string deferred =
      R"({"name": "g", "defer_loading": true, "input_schema": {"type": "object", "properties": {}}})";
  const std::string calls = R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
      {"type": "tool_use", "id": "1", "name": "f", "input": {}}]}, {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "tool_reference", "tool_name": "g"}]}]}])";
  const std::string prompt = prompt_of("\"tools\": [" + deferred + ", " + kFunction + "], " + calls);
  EXPECT_THAT(prompt, HasSubstr(R"(tool:{"name": "g", "parameters": {"type": "object", "properties": {}}};)"));
  EXPECT_EQ(prompt_of("\"tools\": [" + deferred + "], " + kAskedOnce).find("<tools>"), std::string::npos);
}

TEST(MessagesRequest, ToolsMayComeAndGoInTheConversation) {
  const std::string prompt = prompt_of(std::string(R"("tools": [)") + kFunction + R"(], "messages": [
      {"role": "user", "content": "a"},
      {"role": "system", "content": [{"type": "text", "text": "b"},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
          {"name": "g", "input_schema": {"type": "object"}}}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}}]},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "g", "input": {"x": 1}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "c"}]},
      {"role": "system", "output_config": {"effort": "low"}}], "thinking": {"type": "adaptive"})");
  EXPECT_EQ(prompt,
            "<tools>user:a;system:b\nThis tool is available from now on: {\"name\": \"g\", \"parameters\": {\"type\": "
            "\"object\"}}\nThis tool is no longer available: f;assistant:;g(1);tool:c;assistant:");
}

TEST(MessagesRequest, AMessageForOneTurnIsClearedAfterIt) {
  const std::string once = R"({"role": "user", "content": "a"},
      {"role": "system", "content": "s", "clear_at": "next_user_message"})";
  EXPECT_EQ(prompt_of("\"messages\": [" + once + R"(], "thinking": {"type": "adaptive"})"),
            "user:a;system:s;assistant:");
  EXPECT_EQ(prompt_of("\"messages\": [" + once + R"(, {"role": "assistant", "content": "b"},
      {"role": "user", "content": "c"}], "thinking": {"type": "adaptive"})"),
            "user:a;assistant:b;user:c;assistant:");
}

TEST(MessagesRequest, AChoiceOfToolsConstrainsTheOutput) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "this build has no grammars";
  ServedModel model = tool_model();
  const TokenId end = *model.tokenizer->token_to_id("<|im_end|>");
  model.grammars = *GrammarCompiler::create(*model.tokenizer, model.vocab_size, {&end, 1});
  const std::string tools = std::string("\"tools\": [") + kFunction + "], " + kAskedOnce;
  EXPECT_EQ(prepared(tools, model).requests[0].grammar, nullptr);
  EXPECT_NE(prepared(tools + R"(, "tool_choice": {"type": "any"})", model).requests[0].grammar, nullptr);
  EXPECT_NE(prepared(tools + R"(, "tool_choice": {"type": "tool", "name": "f"})", model).requests[0].grammar, nullptr);
  EXPECT_EQ(prompt_of(tools + R"(, "tool_choice": {"type": "none"})", model).find("<tools>"), std::string::npos);
  EXPECT_NE(prepared(std::string(kAskedOnce) + R"(, "output_config": {"format": {"type": "json_schema",
      "schema": {"type": "integer"}}})",
                     model)
                .requests[0]
                .grammar,
            nullptr);
}

TEST(MessagesRequest, ToolsOfAnthropicsServersAreNamedAndSkipped) {
  const ApiJob job = prepared(std::string(R"("tools": [{"type": "web_search_20250305", "name": "web_search"}, )") +
                              kFunction + "], " + kAskedOnce);
  EXPECT_THAT(job.note, HasSubstr("web_search_20250305"));
  EXPECT_THAT(prepared(std::string("\"tools\": [") + kFunction + "], " + kAskedOnce).note, IsEmpty());
}

TEST(MessagesRequest, ThinkingIsOffUnlessAskedFor) {
  const std::string off = "user:a;assistant:<think></think>";
  const std::string on = "user:a;assistant:";
  EXPECT_EQ(prompt_of(kAskedOnce), off);
  EXPECT_EQ(prompt_of(std::string(kAskedOnce) + R"(, "thinking": {"type": "disabled"})"), off);
  EXPECT_EQ(prompt_of(std::string(kAskedOnce) + R"(, "thinking": {"type": "adaptive", "display": "omitted"})"), on);
  EXPECT_EQ(prompt_of(std::string(kAskedOnce) + R"(, "thinking": {"type": "enabled", "budget_tokens": 2000})"), on);
}

TEST(MessagesRequest, TheBudgetLimitsTheThinking) {
  constexpr const char* kBudget = R"(, "thinking": {"type": "enabled", "budget_tokens": 2000})";
  ServedModel model = tool_model();
  EXPECT_FALSE(prepared(std::string(kAskedOnce) + kBudget, model).requests[0].reasoning_limit) << "it has no reasoning";
  model.reasoning_parser = "qwen3";
  model.reasoning_end = reasoning_end_of(model);
  const std::optional<ReasoningLimit> limit =
      prepared(std::string(kAskedOnce) + kBudget, model).requests[0].reasoning_limit;
  ASSERT_TRUE(limit);
  EXPECT_EQ(limit->tokens, 2000);
  EXPECT_FALSE(limit->opened);
  EXPECT_EQ(limit->opening, "<think>");
  EXPECT_EQ(model.tokenizer->decode(limit->closing_ids), "</think>");
  model.reasoning_end = {TokenId(7)};
  EXPECT_THAT(prepared(std::string(kAskedOnce) + kBudget, model).requests[0].reasoning_limit->closing_ids,
              ElementsAre(TokenId(7)))
      << "a request tokenises no mark";
  EXPECT_FALSE(
      prepared(std::string(kAskedOnce) + R"(, "thinking": {"type": "adaptive"})", model).requests[0].reasoning_limit);
  model.reasoning_parser = "deepseek-r1";
  EXPECT_TRUE(prepared(std::string(kAskedOnce) + kBudget, model).requests[0].reasoning_limit->opened);
}

TEST(MessagesRequest, AConstrainedAnswerHasNoThinking) {
  const std::string asked =
      std::string(R"({"model": "m", "thinking": {"type": "adaptive"}, "tools": [)") + kFunction + "], " + kAskedOnce;
  const std::string free = *count_tokens_body(tool_model(), asked + "}");
  for (const char* constraint : {R"("tool_choice": {"type": "any"})", R"("tool_choice": {"type": "tool", "name": "f"})",
                                 R"("output_config": {"format": {"type": "json_schema", "schema": {}}})"}) {
    ApiResult<std::string> counted = count_tokens_body(tool_model(), asked + ", " + constraint + "}");
    ASSERT_TRUE(counted.ok()) << counted.error().message;
    EXPECT_NE(*counted, free) << "the prompt has <think></think>: " << constraint;
  }
}

TEST(MessagesRequest, EffortReachesTemplatesThatNameIt) {
  ServedModel model = tool_model();
  model.chat = *ChatTemplate::parse("{{ reasoning_effort }};{{ messages[0].content }}");
  const auto effort = [&](const char* members) {
    const std::string prompt = prompt_of(kAskedOnce + std::string(members), model);
    return prompt.substr(0, prompt.find(';'));
  };
  EXPECT_EQ(effort(""), "low") << "no thinking";
  EXPECT_EQ(effort(R"(, "thinking": {"type": "adaptive"})"), "") << "the template's default";
  EXPECT_EQ(effort(R"(, "thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"})"), "medium");
  EXPECT_EQ(effort(R"(, "output_config": {"effort": "max"})"), "high");
  const std::string changed = R"({"model": "m", "max_tokens": 9, "output_config": {"effort": "high"}, "messages":
      [{"role": "user", "content": "a"}, {"role": "system", "content": "b", "output_config": {"effort": "medium"}}]})";
  EXPECT_THAT(model.tokenizer->decode(prepare_messages(model, changed)->requests[0].prompt, false),
              ::testing::StartsWith("medium;"));
  EXPECT_EQ(effort(R"(, "thinking": {"type": "enabled", "budget_tokens": 1024})"), "low");
  EXPECT_EQ(effort(R"(, "thinking": {"type": "enabled", "budget_tokens": 31999})"), "high");
}

TEST(MessagesRequest, ThinkingOfEarlierTurnsReachesTheTemplate) {
  ServedModel model = tool_model();
  model.chat = *ChatTemplate::parse(
      "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}|{{ m.content }};{% endfor %}");
  const auto with = [&](const std::string& block) {
    return prompt_of(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [)" + block +
                         R"(, {"type": "text", "text": "b"}]}, {"role": "user", "content": "c"}])",
                     model);
  };
  const std::string expected = "user:|a;assistant:hm|b;user:|c;";
  EXPECT_EQ(with(R"({"type": "thinking", "thinking": "hm", "signature": "of another server"})"), expected);
  EXPECT_EQ(with(R"({"type": "thinking", "thinking": "", "signature": ")" + signature_of_thinking("hm") + "\"}"),
            expected);
}

TEST(MessagesRequest, TheAssistantsLastMessageGoesOn) {
  const ApiJob job = prepared(R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content":
      [{"type": "text", "text": "The best is ("}]}])");
  EXPECT_EQ(test::demo_tokenizer().decode(job.requests[0].prompt, false), "user:a;assistant:The best is (");
}

TEST(MessagesRequest, TheContextLimitsWhatMayFollow) {
  ServedModel model = tool_model();
  model.context_length = 40;
  const auto most = [&](const char* max_tokens) {
    ApiResult<ApiJob> job =
        prepare_messages(model, std::string(R"({"model": "m", "max_tokens": )") + max_tokens + ", " + kAskedOnce + "}");
    EXPECT_TRUE(job.ok()) << job.error().message;
    return job.ok() ? job->requests[0].stop.max_new_tokens : -1;
  };
  const std::int64_t left = most("32000");
  EXPECT_GT(left, 0);
  EXPECT_LT(left, 40);
  EXPECT_EQ(most("1"), 1);
  EXPECT_EQ(most("0"), 0) << "computes the prompt alone";
}

TEST(MessagesRequest, ImagesReachTheEngineInOrder) {
  const std::string file = to_base64(test::ppm(56, 56));
  const std::string image =
      R"({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ")" + file + "\"}}";
  const std::string url =
      R"({"type": "image", "source": {"type": "url", "url": ")" + test::data_url(test::ppm(84, 84)) + "\"}}";
  ServedModel model = test::vision_model();
  model.tool_call_parser = "hermes";
  const ApiJob job = prepared(std::string(R"("tools": [)") + kFunction + R"(], "messages": [
      {"role": "user", "content": [{"type": "text", "text": "a"}, )" +
                                  image + R"(]},
      {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [)" +
                                  url + R"(]},
        {"type": "text", "text": "b"}]}])",
                              model);
  const std::vector<PromptImage>& images = job.requests[0].images;
  ASSERT_THAT(images, SizeIs(2));
  EXPECT_LT(images[0].patches->tokens(), images[1].patches->tokens());
  const std::string prompt = test::vision_tokenizer().decode(job.requests[0].prompt, false);
  EXPECT_THAT(prompt, HasSubstr("tool:[The image of this result follows below.];user:<|vision_start|>"));
  EXPECT_THAT(prompt, HasSubstr("<|vision_end|>b;assistant:"));
}

TEST(MessagesRequest, CountsTheTokensOfThePrompt) {
  const std::string members =
      std::string(R"("model": "claude", "system": "s", "tools": [)") + kFunction + "], " + kAskedOnce;
  ApiResult<std::string> counted = count_tokens_body(tool_model(), "{" + members + "}");
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  const std::size_t tokens = prepared(members.substr(members.find("\"system\""))).requests[0].prompt.size();
  EXPECT_EQ(*counted, "{\"input_tokens\":" + std::to_string(tokens) + "}");
}

}  // namespace
}  // namespace tessera
