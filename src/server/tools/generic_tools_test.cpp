// Catches: tools that a model without a known call format does not see; earlier turns of the conversation in a form
// that the model's template refuses; calls in the generic format that are not found; and answers without the note
// (header X-Tessera-Note) that says how tools were shown.
#include "tessera/server/tools/generic_tools.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "tessera/server/openai/chat_request.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using test::test_model;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A template like Gemma's: roles must alternate, and the roles "system" and "tool" are refused.
constexpr const char* kStrict =
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('role ' + m.role) }}"
    "{% elif (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{{ m.role }}:{{ m.content }};{% endfor %}";

constexpr const char* kWeather = R"({"type": "function", "function": {"name": "weather", "description": "of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}})";

ServedModel generic_model(const char* chat_template = test::kTestTemplate) {
  ServedModel model = test_model();
  model.context_length = 2000;
  model.tool_call_parser = kGenericToolParser;
  model.chat = *ChatTemplate::parse(chat_template);
  return model;
}

struct Prepared {
  std::string prompt;
  std::string note;
  std::unique_ptr<Answer> answer;
};

Prepared prepare(const ServedModel& model, const std::string& messages, const std::string& more = "") {
  const std::string body =
      "{\"messages\": [" + messages + "], \"tools\": [" + kWeather + "]" + (more.empty() ? "" : ", " + more) + "}";
  ApiResult<ApiJob> job = prepare_chat(model, body);
  EXPECT_TRUE(job.ok()) << body << '\n' << job.error().message;
  if (!job.ok()) return {};
  return {test::demo_tokenizer().decode(job->requests[0].prompt, false), job->note, std::move(job->answer)};
}

const std::string kUser = R"({"role": "user", "content": "Is it warm?"})";

TEST(GenericTools, TheSystemMessageDescribesTheTools) {
  const Prepared added = prepare(generic_model(), kUser);
  EXPECT_THAT(added.prompt, AllOf(StartsWith("system:You can call these functions"),
                                  HasSubstr(R"({"name": "weather", "description": "of a city", "parameters": {)"),
                                  HasSubstr("<tool_call>\n{\"name\": "), HasSubstr("user:Is it warm?;assistant:"),
                                  Not(HasSubstr("<tools>"))));
  EXPECT_EQ(added.note, kGenericToolNote);
  const Prepared appended = prepare(generic_model(), R"({"role": "system", "content": "Be brief."}, )" + kUser);
  EXPECT_THAT(appended.prompt, StartsWith("system:Be brief.\n\nYou can call these functions"));
}

TEST(GenericTools, TheUserMessageDescribesThemWithoutSystemRole) {
  EXPECT_THAT(prepare(generic_model(kStrict), kUser).prompt,
              AllOf(StartsWith("user:You can call these functions"), HasSubstr("plain text.\n\nIs it warm?;")));
  constexpr const char* kSilent = "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}";
  EXPECT_THAT(prepare(generic_model(kSilent), kUser).prompt, StartsWith("You can call these functions"));
}

// Checks that the time is linear. Copying all joined results for each further message would be quadratic.
TEST(GenericTools, ManyResultsAreJoinedInLinearTime) {
  Json messages = Json::array();
  constexpr int kResults = 100'000;
  for (int i = 0; i < kResults; ++i)
    messages.push_back(*Json::parse(R"({"role": "tool", "content": "twenty degrees"})", "message"));
  const std::clock_t begin = std::clock();
  const Json joined = with_generic_tools(messages, {}, /*shows_system=*/true);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
  ASSERT_EQ(joined.as_array().size(), 1);
  const std::string& text = joined.as_array()[0].find("content")->as_string();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3 * kResults - 1);
}

TEST(GenericTools, EarlierCallsAndResultsAreText) {
  const std::string history = kUser + R"(, {"role": "assistant", "content": "I look.", "tool_calls": [
          {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
          {"id": "b", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "cold"}, {"role": "tool", "tool_call_id": "b", "content": "warm"},
        {"role": "user", "content": "So?"}, {"role": "assistant", "content": "In Rome."},
        {"role": "user", "content": "Thanks."})";
  EXPECT_THAT(prepare(generic_model(kStrict), history).prompt,
              HasSubstr("Is it warm?;assistant:I look.\n"
                        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n"
                        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>;"
                        "user:<tool_response name=\"weather\">\ncold\n</tool_response>\n"
                        "<tool_response name=\"weather\">\nwarm\n</tool_response>\nSo?;"
                        "assistant:In Rome.;user:Thanks.;"));
  // Earlier calls become text even if this turn has no tools.
  const Prepared without = prepare(generic_model(kStrict), history, R"("tool_choice": "none")");
  EXPECT_THAT(without.prompt,
              AllOf(HasSubstr("<tool_response name=\"weather\">\ncold"), Not(HasSubstr("You can call"))));
  EXPECT_EQ(without.note, "");
}

TEST(GenericTools, AsksForOneCallIfParallelCallsAreOff) {
  EXPECT_THAT(prepare(generic_model(), kUser).prompt, HasSubstr("for several calls"));
  EXPECT_THAT(prepare(generic_model(), kUser, R"("parallel_tool_calls": false)").prompt,
              HasSubstr("one call at a time"));
}

TEST(GenericTools, CallsAreFoundAndTheirNamesChecked) {
  const auto message = [](const std::string& text) {
    const Prepared chat = prepare(generic_model(), kUser);
    RequestEvent event{.text = text, .finish = FinishReason::kStop};
    Completion end;
    std::string stream;
    chat.answer->on_event(0, event, &end, stream);
    return *Json::parse(chat.answer->body(), "the answer")->find("choices")->as_array()[0].find("message");
  };
  const Json called =
      message("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>");
  EXPECT_EQ(called.find("tool_calls")->as_array()[0].find("function")->dump(),
            R"({"name": "weather", "arguments": "{\"city\": \"Oslo\"}"})");
  const std::string unknown = R"({"name": "climate", "arguments": {}})";
  EXPECT_EQ(message(unknown).find("content")->as_string(), unknown);
  EXPECT_EQ(message(unknown).find("tool_calls"), nullptr);
}

TEST(GenericTools, AConstrainedOutputWithdrawsTheTools) {
  if (!GrammarCompiler::available()) GTEST_SKIP() << "no grammars in this build";
  ServedModel able = generic_model();
  able.grammars = *GrammarCompiler::create(test::demo_tokenizer(), able.vocab_size, std::vector{TokenId(0)});
  const Prepared chat = prepare(able, kUser, R"("regex": "a")");
  EXPECT_EQ(chat.prompt, "user:Is it warm?;assistant:");
  EXPECT_EQ(chat.note, kNoGenericToolsNote);
  EXPECT_THAT(prepare(able, kUser, R"("tool_choice": "required")").prompt,
              HasSubstr("answer with a JSON list of calls"));
  EXPECT_THAT(prepare(able, kUser, R"("tool_choice": {"type": "function", "function": {"name": "weather"}})").prompt,
              HasSubstr("Answer with the arguments of a call of \"weather\""));
}

}  // namespace
}  // namespace tessera
