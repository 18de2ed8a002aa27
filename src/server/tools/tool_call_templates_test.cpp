// Catches: call formats that are not recognised in the chat templates of published models; and calls that the parser
// does not find although they have the form in which the model's own template writes calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/tools/tool_call_test_util.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera {
namespace {

// Returns the chat template in a file of the shared data, or "" if the file is absent. The file `path` is a template or
// a tokenizer_config.json.
std::string template_source(const std::string& path) {
  std::string text = shared_text(path);
  if (!path.ends_with(".json") || text.empty()) return text;
  return Json::parse(text, path)->find("chat_template")->as_string();
}

TEST(ToolCallTemplates, ShowTheFormatsOfCallsAndReasoning) {
  constexpr const char* kChats = "chat_templates/llama.cpp/";
  constexpr const char* kTokenizers = "tokenizers/tokenizer_configs/";
  struct Published {
    const char* folder;
    const char* path;
    const char* template_tools;
    const char* reasoning;
  };
  const Published published[] = {
      {kChats, "Qwen-Qwen2.5-7B-Instruct.jinja", "hermes", ""},
      {kChats, "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", "hermes", ""},
      {kChats, "meta-llama-Llama-3.1-8B-Instruct.jinja", "llama3", ""},
      {kChats, "meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3", ""},
      {kChats, "meta-llama-Llama-3.3-70B-Instruct.jinja", "llama3", ""},
      {kChats, "mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", ""},
      {kChats, "llama-cpp-deepseek-r1.jinja", "deepseekv3", "qwen3"},
      {kChats, "google-gemma-2-2b-it.jinja", "", ""},
      {kChats, "microsoft-Phi-3.5-mini-instruct.jinja", "", ""},
      // This model writes JSON between <function=NAME> and </function>, so it must not be taken for qwen3_coder.
      {kChats, "meetkai-functionary-medium-v3.1.jinja", "", ""},
      {kTokenizers, "qwen3_coder/tokenizer_config.json", "qwen3_coder", ""},
      {kTokenizers, "qwen3_30b/tokenizer_config.json", "hermes", "qwen3"},
      {kTokenizers, "qwen3_30b_thinking_0527/tokenizer_config.json", "hermes", "qwen3"},
      {kTokenizers, "glm45/chat_template.jinja", "glm45", "glm45"},
      {kTokenizers, "deepseek_v31/tool_chat_template_deepseekv31.jinja", "deepseekv3", "deepseek-v3"},
  };
  if (shared_text("README.md").empty()) GTEST_SKIP() << "no shared data: chat_templates, tokenizers";
  for (const auto& [folder, path, template_tools, reasoning] : published) {
    const std::string source = template_source(std::string(folder) + path);
    ASSERT_FALSE(source.empty()) << path;
    EXPECT_EQ(guess_tool_call_parser(source), template_tools) << path;
    EXPECT_EQ(guess_reasoning_parser(source), reasoning) << path;
  }
}

TEST(ToolCallTemplates, FormatsWithoutAPublishedTemplateAreGuessed) {
  const std::string_view harmony =
      "{{- \"<|start|>assistant<|channel|>analysis<|message|>\" + x }}{{- \"functions.\" + n + "
      "\"<|channel|>commentary\" }}";
  EXPECT_EQ(guess_tool_call_parser(harmony), "gpt-oss");
  EXPECT_EQ(guess_reasoning_parser(harmony), "gpt-oss");
  const std::string_view magistral = "[THINK]{{ x }}[/THINK]{{ '[TOOL_CALLS]' + n + '[ARGS]' + a }}";
  EXPECT_EQ(guess_tool_call_parser(magistral), "mistral");
  EXPECT_EQ(guess_reasoning_parser(magistral), "mistral");
}

Json json(const std::string& text) { return *Json::parse(text, "test"); }

const Json& template_tools() {
  static const Json kTools = json(R"([{"type": "function", "function": {"name": "book", "description": "a table",
      "parameters": {"type": "object", "properties": {
        "place": {"type": "string"}, "people": {"type": "integer"}, "inside": {"type": "boolean"},
        "price": {"type": "number"}, "names": {"type": "array"}, "more": {"type": "object"},
        "note": {"type": ["string", "null"]}}}}}])");
  return kTools;
}

// Returns the text that the template writes, after the generation prompt, for an assistant's turn with two calls. The
// first call has these arguments, and both calls have this id.
std::string turn(const ChatTemplate& chat, const Json& arguments, const std::string& id) {
  Json messages = json(R"([{"role": "user", "content": "A table, please."}])");
  RenderOptions options;
  options.add_generation_prompt = true;
  options.tools = template_tools();
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  const Result<std::string> prompt = chat.render(messages, options);
  EXPECT_TRUE(prompt.ok()) << prompt.status().message();
  Json message = json(R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function":
      {"name": "book"}}, {"type": "function", "function": {"name": "book", "arguments": {"people": 1}}}]})");
  Json calls = *message.find("tool_calls");
  Json function = json(R"({"name": "book"})");
  function.set("arguments", arguments);
  calls.as_array()[0].set("function", std::move(function)).set("id", id);
  calls.as_array()[1].set("id", id);
  message.set("tool_calls", std::move(calls));
  messages.push_back(std::move(message));
  options.add_generation_prompt = false;
  const Result<std::string> all = chat.render(messages, options);
  EXPECT_TRUE(all.ok()) << all.status().message();
  if (!prompt.ok() || !all.ok()) return "";
  // The generation prompt may open or close the reasoning, although the finished turn does not. The turn's text begins
  // where the two rendered texts differ.
  const auto [left, right] = std::ranges::mismatch(*all, *prompt);
  return std::string(left, all->end());
}

TEST(ToolCallTemplates, CallsAreReadAsTheTemplateWritesThem) {
  if (shared_text("README.md").empty()) GTEST_SKIP() << "no shared data: chat_templates, tokenizers";
  const Json arguments[] = {
      json(R"({"place": "Café \"Zoë\"\n<b>& more</b>\\", "people": -3, "inside": true, "price": 12.5,
               "names": ["a'b", "</parameter>", {"x": null}], "more": {"k": [1, false]}, "note": null})"),
      json(R"({"place": "", "note": "nullify\n\n", "people": 9007199254740993})"),
      json(R"({"place": "</parameter>\n x </arg_value> { </tool_call>", "note": " a "})"),
  };
  for (const char* path : {"chat_templates/llama.cpp/Qwen-Qwen2.5-7B-Instruct.jinja",
                           "chat_templates/llama.cpp/mistralai-Mistral-Nemo-Instruct-2407.jinja",
                           "tokenizers/tokenizer_configs/qwen3_coder/tokenizer_config.json",
                           "tokenizers/tokenizer_configs/qwen3_30b_thinking_0527/tokenizer_config.json",
                           "tokenizers/tokenizer_configs/glm45/chat_template.jinja",
                           "tokenizers/tokenizer_configs/deepseek_v31/tool_chat_template_deepseekv31.jinja"}) {
    const std::string source = template_source(path);
    const Result<ChatTemplate> chat = ChatTemplate::parse(source);
    ASSERT_TRUE(chat.ok()) << path;
    for (const Json& expected : arguments) {
      const std::string text = turn(*chat, expected, "a1B2c3D4e");
      const Parsed parsed =
          parse_calls(guess_tool_call_parser(source), template_tools(), text, [&] { return text.size(); });
      ASSERT_EQ(parsed.calls.size(), 2u) << path << ": " << text;
      const Result<Json> read = Json::parse(parsed.calls[0].arguments, "arguments");
      ASSERT_TRUE(read.ok()) << path << ": " << parsed.calls[0].arguments;
      EXPECT_EQ(*read, expected) << path << ": " << text;
      EXPECT_EQ(parsed.calls[1].arguments, R"({"people": 1})") << path;
      expect_calls(guess_tool_call_parser(source), template_tools(), text, parsed);
    }
  }
}

}  // namespace
}  // namespace tessera
