// Catches differences from Jinja2 in small templates and in the chat templates of real models: wrong white space around
// tags; wrong scopes of variables; wrong results of slices or filters; a wrong order after sort, dictsort or tojson.
// The tests are skipped without the directory of shared data (test_data.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tessera/text/chat/chat_template.h"
#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {
namespace {

using test::shared_data;

bool flag(const Json& item, const char* name) {
  const Json* value = item.find(name);
  return value != nullptr && value->is_bool() && value->as_bool();
}

// Returns the text of the member `name`; "" if there is none.
std::string text_of(const Json& item, const char* name) {
  const Json* value = item.find(name);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

TEST(SharedTemplates, UnitCasesEqualJinja2) {
  const std::string path = shared_data("chat_templates/unit_cases.json");
  if (path.empty()) GTEST_SKIP() << "no shared data: chat_templates";
  const Json cases = *Json::read_file(path);
  int equal = 0;
  for (const Json& item : cases.as_array()) {
    if (!flag(item, "python_jinja2_equal")) continue;
    const std::string& name = item.find("name")->as_string();
    const auto chat = ChatTemplate::parse(item.find("template")->as_string(), name);
    ASSERT_TRUE(chat.ok()) << chat.status().to_string();
    const auto text = chat->render_variables(*item.find("context"));
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(*text, item.find("expected")->as_string()) << name;
    ++equal;
  }
  EXPECT_GE(equal, 98);
  fmt::print("{} unit cases equal\n", equal);
}

TEST(SharedTemplates, ModelCasesEqualJinja2) {
  const std::string path = shared_data("chat_templates/llama.cpp/test-chat-template_cases.json");
  if (path.empty()) GTEST_SKIP() << "no shared data: chat_templates";
  const Json file = *Json::read_file(path);
  int equal = 0;
  for (const Json& item : file.find("cases")->as_array()) {
    if (!flag(item, "python_jinja2_equal")) continue;
    const std::string& name = item.find("name")->as_string();
    const auto chat = ChatTemplate::parse(item.find("template_str")->as_string(), name);
    ASSERT_TRUE(chat.ok()) << chat.status().to_string();
    RenderOptions options;
    options.add_generation_prompt = file.find("add_generation_prompt")->as_bool();
    options.bos_token = text_of(item, "bos_token");
    options.eos_token = text_of(item, "eos_token");
    const auto text = chat->render(*file.find("messages"), options);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const std::string jinja = text_of(item, "expected_output_jinja");
    EXPECT_EQ(*text, jinja.empty() ? text_of(item, "expected_output") : jinja) << name;
    ++equal;
  }
  EXPECT_GE(equal, 22);
  fmt::print("{} model cases equal\n", equal);
}

TEST(SharedTemplates, EveryModelTemplateParses) {
  const std::string folder = shared_data("chat_templates/llama.cpp");
  if (folder.empty()) GTEST_SKIP() << "no shared data: chat_templates";
  int parsed = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    const auto chat = ChatTemplate::parse(test::read_bytes(entry.path()), entry.path().filename());
    EXPECT_TRUE(chat.ok()) << chat.status().to_string();
    ++parsed;
  }
  for (const auto& entry : std::filesystem::directory_iterator(shared_data("tokenizers/tokenizer_configs"))) {
    const auto config = TokenizerConfig::load(entry.path());
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    for (const auto& named : config->chat_templates) {
      const auto chat = ChatTemplate::parse(named.source, entry.path().filename());
      EXPECT_TRUE(chat.ok()) << chat.status().to_string();
      ++parsed;
    }
  }
  EXPECT_GE(parsed, 20);
  fmt::print("{} model templates parse\n", parsed);
}

}  // namespace
}  // namespace tessera
