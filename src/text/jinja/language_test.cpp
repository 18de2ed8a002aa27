// Catches: differences from Jinja2 3.1 in language, white space, filters, methods and printing; templates that fail in
// Jinja2 and pass here; and templates that exhaust stack, memory or time. Jinja2, set up as in Hugging Face's
// apply_chat_template, computed the expected results.
#include "tessera/text/chat/chat_template.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "tessera/text/test_data.h"

namespace tessera {
namespace {

using test::own_data;
using test::shared_data;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Sets the time zone UTC, because strftime_now() formats local time.
void use_utc() {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
}

Result<std::string> render(const std::string& source, const Json& variables = Json::object(),
                           RenderOptions options = {}) {
  const ChatTemplate chat = TRY(ChatTemplate::parse(source, "t"));
  return chat.render_variables(variables, options);
}

TEST(Template, LanguageEqualsJinja2) {
  use_utc();
  const Json file = *Json::read_file(own_data("template_cases.json"));
  RenderOptions options;
  options.now = file.find("now")->as_int();
  int equal = 0;
  int refused = 0;
  for (const Json& item : file.find("cases")->as_array()) {
    const std::string& source = item.find("template")->as_string();
    const auto text = render(source, *file.find("variables"), options);
    if (const Json* expected = item.find("expected")) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.status().to_string();
      EXPECT_EQ(*text, expected->as_string()) << source;
      ++equal;
    } else {
      ASSERT_FALSE(text.ok()) << source << "\ngives " << *text << "\nbut: " << item.find("error")->as_string();
      EXPECT_THAT(text.status().message(), HasSubstr("t: line ")) << source;
      ++refused;
    }
  }
  EXPECT_GE(equal, 80);
  EXPECT_GE(refused, 80);
}

// The data file stores the length and the FNV-1a hash of each expected rendering, because a rendering contains text of
// the model's template, and no model's template is stored here.
std::string fnv1a(const std::string& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return fmt::format("{:016x}", hash);
}

std::string template_source(const std::string& path) {
  if (!path.ends_with(".json")) return test::read_bytes(path);
  return Json::read_file(path)->find("chat_template")->as_string();
}

TEST(Template, RealTemplatesEqualJinja2) {
  if (shared_data("chat_templates").empty()) GTEST_SKIP() << "no shared data: chat_templates";
  use_utc();
  const Json file = *Json::read_file(own_data("model_templates.json"));
  int equal = 0;
  int refused = 0;
  for (const Json& result : file.find("results")->as_array()) {
    const std::string& name = result.as_array()[0].as_string();
    const std::string& conversation_name = result.as_array()[1].as_string();
    const Json& conversation = *file.find("conversations")->find(conversation_name);
    const auto chat = ChatTemplate::parse(template_source(shared_data(name)), name);
    ASSERT_TRUE(chat.ok()) << chat.status().to_string();
    RenderOptions options;
    const Json* generate = conversation.find("gen");
    options.add_generation_prompt = generate == nullptr || generate->as_bool();
    options.bos_token = "<s>";
    options.eos_token = "</s>";
    options.now = file.find("now")->as_int();
    if (const Json* tools = conversation.find("tools")) options.tools = *tools;
    if (const Json* extra = conversation.find("extra")) options.extra = *extra;
    const auto text = chat->render(*conversation.find("messages"), options);
    const std::int64_t length = result.as_array()[2].as_int();
    const std::string& expected = result.as_array()[3].as_string();
    SCOPED_TRACE(name + " / " + conversation_name);
    if (length < 0) {
      EXPECT_FALSE(text.ok()) << "gives " << *text << "\nbut: " << expected;
      ++refused;
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    EXPECT_EQ(static_cast<std::int64_t>(text->size()), length) << *text;
    EXPECT_EQ(fnv1a(*text), expected) << *text;
    ++equal;
  }
  fmt::print("{} renderings equal, {} refused by both\n", equal, refused);
  EXPECT_GE(equal, 200);
}

TEST(Template, RendersAChatMlPrompt) {
  const ChatTemplate chat = *ChatTemplate::parse(
      "{% for message in messages %}\n"
      "{{ '<|im_start|>' + message.role + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}\n"
      "{%- endfor %}\n"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}");
  const Json messages = *Json::parse(R"([{"role": "user", "content": "Hi"}])", "messages");
  EXPECT_EQ(*chat.render(messages), "<|im_start|>user\nHi<|im_end|>\n");
  EXPECT_EQ(*chat.render(messages, {.add_generation_prompt = true}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_THAT(chat.render(Json("text")).status().message(), HasSubstr("accepted: an array"));
}

TEST(Template, ExtraVariablesWin) {
  const ChatTemplate chat = *ChatTemplate::parse("{{ bos_token }}{{ enable_thinking }}{{ tools is none }}");
  RenderOptions options;
  options.bos_token = "<s>";
  options.extra.set("enable_thinking", false).set("bos_token", "<t>");
  EXPECT_EQ(*chat.render(Json::array(), options), "<t>FalseTrue");
  options.extra = Json(1);
  EXPECT_THAT(chat.render(Json::array(), options).status().message(), HasSubstr("accepted: an object"));
}

TEST(Template, ErrorsSayWhere) {
  const auto message = [](const std::string& source) { return render(source).status().message(); };
  EXPECT_EQ(message("a\nb {{ x.y }}"), "t: line 2, column 7: 'x' is undefined");
  EXPECT_EQ(message("é{{ raise_exception('no system role') }}"), "t: line 1, column 20: no system role");
  EXPECT_EQ(message("\n\n{% endif %}"), "t: line 3, column 4: unknown tag 'endif'");
  EXPECT_THAT(message("{{ 1 | nope }}"), HasSubstr("no filter named 'nope'; accepted: abs, "));
  EXPECT_THAT(message("{{ 1 is nope }}"), HasSubstr("no test named 'nope'; accepted: boolean, "));
  EXPECT_EQ(render("{% include 'x' %}").status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(message("a\xff"), HasSubstr("byte 1 is not UTF-8"));
}

TEST(Template, UnsupportedConstructsAreErrors) {
  for (const char* source :
       {"{% extends 'a' %}", "{% block a %}{% endblock %}", "{% from 'a' import b %}", "{{ range(3) }}",
        "{{ [1] | map('string') }}", "{{ raise_exception }}", "{{ '{}'.format(1) }}", "{{ '%(a)s' % {'a': 1} }}",
        "{{ ('<a>' | safe) % 1 }}", "{{ 9223372036854775807 + 1 }}", "{{ 99999999999999999999 }}",
        "{% set g = [1, 2] | select %}{{ g | first }}{{ g | list }}", "{% set ns = namespace() %}{% set ns.a = ns %}",
        "{% set ns = namespace() %}{{ [ns] }}", "{{ 'a' is sameas 'a' }}"}) {
    const auto text = render(source);
    ASSERT_FALSE(text.ok()) << source << " gives " << *text;
    EXPECT_EQ(text.status().code(), StatusCode::kUnimplemented) << source << ": " << text.status().message();
  }
}

std::string repeated(const std::string& part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

TEST(Template, DeepNestingIsAnError) {
  constexpr int kDeep = 100'000;
  for (const std::string& source :
       {"{{ " + repeated("(", kDeep), "{{ " + repeated("[", kDeep), "{{ " + repeated("-", kDeep) + "1 }}",
        "{{ " + repeated("not ", kDeep) + "1 }}", "{{ 1" + repeated(" + 1", kDeep) + " }}",
        "{{ a" + repeated(".a", kDeep) + " }}", "{{ a" + repeated("()", kDeep) + " }}",
        "{{ a" + repeated("|trim", kDeep) + " }}", "{{ 1" + repeated(" if 1 else 1", kDeep) + " }}",
        repeated("{% if 1 %}", kDeep), repeated("{% for a in b %}", kDeep), repeated("{% set a %}", kDeep),
        "{% set " + repeated("(", kDeep), "{{ a" + repeated(" is defined", kDeep) + " }}",
        "{{ " + repeated("{1:", kDeep)}) {
    EXPECT_FALSE(ChatTemplate::parse(source).ok()) << source.substr(0, 40);
  }
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
constexpr double kMostSeconds = 2;
#else
constexpr double kMostSeconds = 30;
#endif

TEST(Template, TemplatesWithoutEndAreStopped) {
  for (const char* source : {
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{% set r = range(100000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% "
           "endfor %}",
           "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | "
           "tojson }}",
           "{% set ns = namespace(x=[1]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
           "{% set ns = namespace(x=[1],y=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = "
           "[ns.y, ns.y] %}"
           "{% endfor %}{{ ns.x == ns.y }}",
           "{{ 'a' * 1000000000000 }}",
           "{{ [1] * 1000000000000 }}",
           "{{ 'a' | center(1000000000000) }}",
           "{{ range(100001) }}",
           "{{ ('a' * 60000000).replace('a', 'bbbbbbbbbbbbbbbbbbbb') }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ 'a' | indent(1000000000000) }}",
           "{% set ns = namespace(f=[]) %}{% for i in range(100000) %}{% macro f() %}{% endmacro %}{% set ns.f = f "
           "%}{% endfor %}"
           "{% for i in range(100000) %}{% macro f() %}{% endmacro %}{{ f() }}{% endfor %}",
           "{% set x = 'a' * 12000000 %}{{ x }}{{ x }}",
           // These operations look cheap, but read a long text again and again.
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{% if s.find('a' * 30000 ~ 'b') == 0 %}{% endif %}{% "
           "endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.rfind('b' ~ 'a' * 30000) }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.count('a' * 30000 ~ 'b') }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ ('a' * 30000 ~ 'b') in s }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.isalpha() }}{{ s.islower() }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ 'x'.startswith(s) }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s.strip('b' * 900000 ~ 'a') }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s | wordcount }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ 'x' | default(s) | replace(s, s) }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ s[1:2] }}{{ s[-1] }}{% endfor %}",
           "{% set s = 'a' * 9000000 %}{% set t = s ~ '' %}{% for i in range(99999) %}{{ s == t }}{{ s < t }}{% endfor "
           "%}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{{ {'a': 1}[s] }}{% endfor %}",
           "{% set s = '\n' * 16000000 %}{{ s.splitlines() | length }}",
           "{% set s = '\n' * 16000000 %}{{ s.split('\n') | length }}",
           "{% set s = 'a ' * 8000000 %}{{ s.split() | length }}",
           "{% set s = 'a' * 9000000 %}{% for i in range(99999) %}{% set t %}{{ s }}{% endset %}{% endfor %}",
       }) {
    const std::clock_t start = std::clock();
    const auto text = render(source);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kMostSeconds) << source;
    ASSERT_FALSE(text.ok()) << source << " gives " << text->size() << " bytes";
    EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << source << ": " << text.status().message();
  }
}

TEST(Template, StepsOfSlicesMayBeAnyInteger) {
  EXPECT_EQ(
      *render("{{ 'abc'[1::9223372036854775807] }}{{ [1, 2, 3][1::9223372036854775807] }}"
              "{{ 'abc'[1::-9223372036854775807] }}{{ 'äöü'[1:] }}{{ 'äöü'[:-2] }}{{ 'äöü'[2:1] }}{{ 'äöü'[-9:9] }}"),
      "b[2]böüääöü");
}

TEST(Template, NamesTheVariablesOfItsSource) {
  const ChatTemplate chat = *ChatTemplate::parse("{% for d in documents or [] %}{{ d.title }}{% endfor %}{{ a_b }}");
  for (const char* const name : {"documents", "d", "a_b"}) EXPECT_TRUE(chat.names(name)) << name;
  for (const char* const name : {"document", "documents_", "b", "a", "thinking"})
    EXPECT_FALSE(chat.names(name)) << name;
}

TEST(Template, SearchesFromTheRight) {
  EXPECT_EQ(
      *render("{{ 'abcabd'.rfind('ab') }}{{ 'aabaab'.rfind('aab') }}{{ 'aaa'.rfind('aa') }}{{ 'a'.rfind('ab') }}"
              "{{ 'abab'.rfind('') }}{{ 'äbä'.rfind('ä') }}{{ 'a,b,,c'.rsplit(',', 1) }}{{ 'xaxb'.rpartition('xa') }}"),
      "331-142['a,b,', 'c']('', 'xa', 'xb')");
}

TEST(Template, ValuesOutliveTheLoopTheyWereMadeIn) {
  EXPECT_EQ(*render("{% set ns = namespace() %}{% for i in [1, 2] %}{% macro f() %}{{ i }}{% endmacro %}"
                    "{% set ns.f = f %}{% set ns.l = loop %}{% endfor %}{{ ns.f() }}{{ ns.l.index }}"),
            "22");
  EXPECT_EQ(*render("{% set ns = namespace() %}{% for a in [1, 2] %}{% for x in [7] recursive %}{{ x }}{{ a }}"
                    "{% set ns.l = loop %}{% endfor %}{% endfor %};{{ ns.l([8]) }}"),
            "7172;82");
  // loop.changed() stores its arguments in the loop, so this loop contains itself until it ends.
  EXPECT_EQ(*render("{% for a in [1] %}{{ loop.changed(loop, [loop.cycle]) }}{% endfor %}"), "True");
}

}  // namespace
}  // namespace tessera
