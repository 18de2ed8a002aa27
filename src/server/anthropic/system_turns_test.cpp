// Catches: a system message in mid-conversation that moves to the front, is lost, or fails with a template that has no
// place for it; prompts whose beginning changes as the conversation grows; and a long conversation that takes the
// square of its length.
#include "tessera/server/anthropic/system_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tessera/server/tools/tool_call_test_util.h"

namespace tessera {
namespace {

using ::testing::StartsWith;

// A template that prints every message in its place.
constexpr const char* kAnywhere =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif "
    "%}";
// A template that refuses a system message that is not the first message, as in Qwen3.5.
constexpr const char* kFrontAlone =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
    "at "
    "the beginning.') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt "
    "%}<assistant>{% endif %}";
// A template that prints all system messages first, as in DeepSeek.
constexpr const char* kCollected =
    "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}{% for m in messages if m.role != "
    "'system' "
    "%}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";
// A template that refuses every system message and requires the roles to alternate, as in Gemma.
constexpr const char* kNone =
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must "
    "alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% "
    "endif "
    "%}";

Json turns_of(const std::string& json) { return *Json::parse(json, "turns"); }

std::string rendered(const ChatTemplate& chat, const std::string& json) {
  const Json turns = turns_of(json);
  RenderOptions options;
  options.add_generation_prompt = true;
  const Result<std::string> prompt = chat.render(fit_turns(turns, find_system_places(turns, chat, options)), options);
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  return prompt.ok() ? *prompt : "";
}

constexpr const char* kFirstTurn =
    R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "system", "content": "M"}])";
constexpr const char* kSecondTurn =
    R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "system", "content": "M"},
        {"role": "assistant", "content": "A"}, {"role": "user", "content": "V"}])";

TEST(SystemTurns, StayInPlaceWhereTheTemplatePrintsThem) {
  const ChatTemplate chat = *ChatTemplate::parse(kAnywhere);
  EXPECT_EQ(rendered(chat, kFirstTurn), "<system>S<user>U<system>M<assistant>");
  EXPECT_EQ(rendered(chat, kSecondTurn), "<system>S<user>U<system>M<assistant>A<user>V<assistant>");
}

TEST(SystemTurns, BecomeUserTurnsIfTheTemplateCannotPlaceThem) {
  const ChatTemplate front = *ChatTemplate::parse(kFrontAlone);
  EXPECT_EQ(rendered(front, kFirstTurn), "<system>S<user>U\n<system>\nM\n</system><assistant>");
  const ChatTemplate collected = *ChatTemplate::parse(kCollected);
  EXPECT_EQ(rendered(collected, kFirstTurn), "S<user>U\n<system>\nM\n</system><assistant>");
  const ChatTemplate none = *ChatTemplate::parse(kNone);
  EXPECT_EQ(rendered(none, kFirstTurn), "<user><system>\nS\n</system>\nU\n<system>\nM\n</system><assistant>");
}

TEST(SystemTurns, TheNextPromptBeginsWithTheOneBefore) {
  for (const char* source : {kAnywhere, kFrontAlone, kCollected, kNone}) {
    const ChatTemplate chat = *ChatTemplate::parse(source);
    EXPECT_THAT(rendered(chat, kSecondTurn), StartsWith(rendered(chat, kFirstTurn))) << source;
  }
}

TEST(SystemTurns, AFirstMessageNeedsNoSystem) {
  const ChatTemplate chat = *ChatTemplate::parse(kFrontAlone);
  EXPECT_EQ(rendered(chat, R"([{"role": "user", "content": "U"}, {"role": "system", "content": "M"}])"),
            "<user>U\n<system>\nM\n</system><assistant>");
}

TEST(SystemTurns, AdjacentTurnsOfARoleAreOne) {
  const Json joined = fit_turns(turns_of(R"([{"role": "user", "content": "a"},
      {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "image"}]},
      {"role": "assistant", "content": "c", "reasoning_content": "r", "tool_calls": [1]},
      {"role": "assistant", "content": "d", "reasoning_content": "s", "tool_calls": [2]},
      {"role": "tool", "content": "e"}, {"role": "tool", "content": "f"}])"),
                                {});
  EXPECT_EQ(joined.dump(), turns_of(R"([{"role": "user", "content": [{"type": "text", "text": "a\nb"},
      {"type": "image"}]}, {"role": "assistant", "content": "cd", "reasoning_content": "r\ns", "tool_calls": [1, 2]},
      {"role": "tool", "content": "e"}, {"role": "tool", "content": "f"}])")
                               .dump());
}

TEST(SystemTurns, ManyTurnsAreJoinedInLinearTime) {
  constexpr std::size_t kTurns = 20'000;
  const Json user = turns_of(R"([{"role": "user", "content": ")" + std::string(200, 'u') + "\"}]").as_array()[0];
  const Json called = turns_of(R"([{"role": "assistant", "content": "c", "reasoning_content": "r", "tool_calls": [
      {"id": "1", "function": {"name": "f", "arguments": {}}}]}])")
                          .as_array()[0];
  Json turns = Json::array();
  for (const Json& turn : {user, called})
    for (std::size_t i = 0; i < kTurns; ++i) turns.push_back(turn);
  const std::clock_t begin = std::clock();
  const Json joined = fit_turns(std::move(turns), {});
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10);
  ASSERT_EQ(joined.as_array().size(), 2U);
  EXPECT_EQ(joined.as_array()[0].find("content")->as_string().size(), 201 * kTurns - 1);
  EXPECT_EQ(joined.as_array()[1].find("content")->as_string().size(), kTurns);
  EXPECT_EQ(joined.as_array()[1].find("tool_calls")->as_array().size(), kTurns);
}

TEST(SystemTurns, PublishedTemplatesKeepTheBeginningOfThePrompt) {
  const std::string folder = "chat_templates/llama.cpp/";
  int seen = 0;
  for (const char* path :
       {"Qwen-Qwen2.5-7B-Instruct.jinja", "meta-llama-Llama-3.1-8B-Instruct.jinja",
        "meta-llama-Llama-3.3-70B-Instruct.jinja", "llama-cpp-deepseek-r1.jinja", "google-gemma-2-2b-it.jinja",
        "microsoft-Phi-3.5-mini-instruct.jinja", "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja"}) {
    const std::string source = shared_text(folder + path);
    if (source.empty()) continue;
    ++seen;
    const ChatTemplate chat = *ChatTemplate::parse(source, path);
    const std::string second = rendered(chat, kSecondTurn);
    std::string first = rendered(chat, kFirstTurn);
    first.resize(first.rfind('M') + 1);  // some templates write another tag if the assistant's answer follows
    EXPECT_THAT(second, StartsWith(first)) << path;
    EXPECT_LT(second.find('U'), second.rfind('V')) << path;
  }
  if (seen == 0) GTEST_SKIP() << "no shared data: chat_templates";
}

}  // namespace
}  // namespace tessera
