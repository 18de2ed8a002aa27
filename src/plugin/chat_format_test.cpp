// Catches: a chat format that is accepted although it fails on the example in its own table; a character that is lost
// because two fragments of the text each contain a part of its bytes; a plugin's table that is accepted although it is
// faulty. tests/plugin/chat_formats_test.py tests formats in a server.
#include "tessera/plugin/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::plugin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ChatPiece::Kind;
using Part = ChatFormat::Part;

// Controls the plugin's parser and records its calls. Each test sets `push`. Only one parser exists at a time.
struct Behaviour {
  std::int32_t (*push)(std::string_view text, const tessera_plugin_pieces* pieces, tessera_plugin_error* error);
  int live = 0;                                // parsers that exist
  std::int32_t reasoning = -1, reasoned = -1;  // from the tessera_plugin_chat of the latest begin()
};
Behaviour behaviour;

std::int32_t give(const tessera_plugin_pieces* pieces, std::int32_t kind, std::string_view text,
                  tessera_plugin_error* error) {
  return pieces->add(pieces, kind, text.data(), text.size(), error);
}

tessera_plugin_chat_format table_of(std::int32_t finds, const char* example) {
  tessera_plugin_chat_format table{};
  table.size = sizeof(table);
  table.name = "a_format";
  table.finds = finds;
  table.example = example;
  table.begin = [](void*, const tessera_plugin_chat* chat, void** parser, tessera_plugin_error*) -> std::int32_t {
    ++behaviour.live;
    behaviour.reasoning = chat->reasoning;
    behaviour.reasoned = chat->reasoned;
    *parser = &behaviour;
    return TESSERA_PLUGIN_OK;
  };
  table.push = [](void*, const char* text, std::size_t bytes, const tessera_plugin_pieces* pieces,
                  tessera_plugin_error* error) {
    return behaviour.push({text, bytes}, pieces, error);
  };
  table.finish = [](void*, const tessera_plugin_pieces*, tessera_plugin_error*) -> std::int32_t { return 0; };
  table.release = [](void*) { --behaviour.live; };
  return table;
}

std::string why_refused(const tessera_plugin_chat_format& table) {
  const auto made = make_plugin_chat_format(&table);
  EXPECT_EQ(behaviour.live, 0) << "parsers that were not released";
  return made.ok() ? "it was not" : made.status().message();
}

// Returns every byte as reasoning.
std::int32_t push_reasoning(std::string_view text, const tessera_plugin_pieces* pieces, tessera_plugin_error* error) {
  return give(pieces, TESSERA_PLUGIN_REASONING, text, error);
}

TEST(PluginChatFormat, AnyFragmentsGiveWholeCharacters) {
  behaviour.push = push_reasoning;
  const tessera_plugin_chat_format table = table_of(TESSERA_PLUGIN_FINDS_REASONING, "ü€");
  const auto format = make_plugin_chat_format(&table);
  ASSERT_TRUE(format.ok()) << format.status().to_string();
  EXPECT_TRUE((*format)->finds(Part::kReasoning));
  EXPECT_FALSE((*format)->finds(Part::kCalls));
  auto parser = (*format)->begin({.part = Part::kReasoning});
  ASSERT_TRUE(parser.ok());
  EXPECT_THAT(*(*parser)->push("a\xe2\x82"), ElementsAre(ChatPiece{Kind::kReasoning, "a"}));
  EXPECT_THAT(*(*parser)->push("\xac!"), ElementsAre(ChatPiece{Kind::kReasoning, "€!"}));
  EXPECT_TRUE((*parser)->push("\xe2")->empty());
  EXPECT_THAT((*parser)->finish().status().message(), HasSubstr("chat format a_format: it gave a piece of 1 bytes"));
  parser->reset();
  EXPECT_EQ(behaviour.live, 0);
}

TEST(PluginChatFormat, RefusesAFormatThatDependsOnTheCuts) {
  behaviour.push = [](std::string_view text, const tessera_plugin_pieces* pieces, tessera_plugin_error* error) {
    const bool marked = text.starts_with("<<");  // a faulty check, which finds the mark only at the start of a fragment
    return give(pieces, marked ? TESSERA_PLUGIN_REASONING : TESSERA_PLUGIN_CONTENT, text, error);
  };
  EXPECT_EQ(
      why_refused(table_of(TESSERA_PLUGIN_FINDS_REASONING, "<<x")),
      "chat format a_format: it reads its example as reasoning \"<<x\"; where it is cut at every byte, as content "
      "\"<<x\"");
  EXPECT_THAT(why_refused(table_of(TESSERA_PLUGIN_FINDS_REASONING, "x")),
              HasSubstr("it finds no reasoning in its example, but content \"x\""));
}

TEST(PluginChatFormat, RefusesExampleCallsWithoutAnObject) {
  behaviour.push = [](std::string_view text, const tessera_plugin_pieces* pieces, tessera_plugin_error* error) {
    for (const char c : text) {
      const std::int32_t code = c == 'f' ? give(pieces, TESSERA_PLUGIN_CALL, "f", error)
                                         : give(pieces, TESSERA_PLUGIN_ARGUMENTS, {&c, 1}, error);
      if (code != TESSERA_PLUGIN_OK) return code;
    }
    return std::int32_t{TESSERA_PLUGIN_OK};
  };
  const auto why = [](const char* example) { return why_refused(table_of(TESSERA_PLUGIN_FINDS_CALLS, example)); };
  EXPECT_EQ(why("f{}"), "it was not");
  EXPECT_THAT(why("f[1]"), HasSubstr("its example gives [1] to f; arguments are an object"));
  EXPECT_THAT(why("f{"), HasSubstr("what its example gives to f"));
  EXPECT_THAT(why("f"), HasSubstr("what its example gives to f"));
  EXPECT_THAT(why("{}"), HasSubstr("it gave arguments before a call"));
}

TEST(PluginChatFormat, AWrongTableIsNamed) {
  behaviour.push = push_reasoning;
  const tessera_plugin_chat_format right = table_of(TESSERA_PLUGIN_FINDS_REASONING, "x");
  EXPECT_EQ(why_refused(right), "it was not");
  tessera_plugin_chat_format table = right;
  table.example = nullptr;
  EXPECT_EQ(why_refused(table), "the chat format a_format has no example");
  table = right;
  table.release = nullptr;
  EXPECT_EQ(why_refused(table), "the chat format a_format has no release");
  table = right;
  table.finds = 4;
  EXPECT_THAT(why_refused(table), HasSubstr("finds is 4; accepted are reasoning (1), calls (2) and both (3)"));
  table = right;
  table.name = "no word";
  EXPECT_THAT(why_refused(table), HasSubstr("the chat format's name is \"no word\""));
  table = right;
  table.size = 8;
  EXPECT_THAT(why_refused(table), HasSubstr("the chat format's size is 8"));
}

// begin() fails after it has made a parser. The plugin must then free this parser itself, and the engine must not
// release it.
TEST(PluginChatFormat, AFailedBeginIsNotReleased) {
  tessera_plugin_chat_format table = table_of(TESSERA_PLUGIN_FINDS_REASONING, "x");
  table.begin = [](void*, const tessera_plugin_chat*, void** parser, tessera_plugin_error* error) -> std::int32_t {
    *parser = &behaviour;
    return tessera_plugin_fail(error, TESSERA_PLUGIN_INTERNAL, "no begin");
  };
  EXPECT_THAT(why_refused(table), HasSubstr("chat format a_format: no begin"));
}

TEST(PluginChatFormat, ReceivesWhereTheTextBegins) {
  behaviour.push = push_reasoning;
  tessera_plugin_chat_format table = table_of(TESSERA_PLUGIN_FINDS_REASONING, "x");
  EXPECT_EQ((*make_plugin_chat_format(&table))->reasoning_marks().opening, "") << "null: none";
  table.reasoning_opening = "[[why ";
  table.reasoning_closing = "]]";
  const auto format = *make_plugin_chat_format(&table);
  EXPECT_EQ(format->reasoning_marks().opening, "[[why ");
  EXPECT_EQ(format->reasoning_marks().closing, "]]");
  const auto told = [&](ReasoningStart start) {
    EXPECT_TRUE(format->begin({.part = Part::kReasoning, .start = start}).ok());
    return std::pair(behaviour.reasoning, behaviour.reasoned);
  };
  EXPECT_EQ(told(ReasoningStart::kBefore), std::pair(0, 0));
  EXPECT_EQ(told(ReasoningStart::kInside), std::pair(1, 0));
  EXPECT_EQ(told(ReasoningStart::kBehind), std::pair(0, 1));
}

TEST(ReasoningMarks, TellWhereATextBegins) {
  const ReasoningMarks marks{.opening = "[[why ", .closing = "]]"};
  using enum ReasoningStart;
  EXPECT_EQ(marks.start("user: hi\n", ""), kBefore);
  EXPECT_EQ(marks.start("user: hi\n[[why ", ""), kInside);
  EXPECT_EQ(marks.start("user: hi\n[[why\n", ""), kInside) << "spaces do not count";
  EXPECT_EQ(marks.start("[[why a]] user: hi\n", ""), kBefore) << "an older turn's";
  EXPECT_EQ(marks.start("hi<think>", ""), kBefore) << "another form's";
  EXPECT_EQ(marks.start("hi[[why so", "[[why so"), kInside);
  EXPECT_EQ(marks.start("hi[[why so]] I", "[[why so]] I"), kBehind);
  EXPECT_EQ(marks.start("hi[[why so]] I [[why n", "[[why so]] I [[why n"), kInside);
  EXPECT_EQ(marks.start("hi I", "I"), kBefore);
  EXPECT_EQ((ReasoningMarks{.opening = "", .closing = "]]"}.start("hi so]]", "so]]")), kBehind);
  EXPECT_EQ(ReasoningMarks{}.start("hi", "hi"), kBefore);
}

TEST(ChatFormats, ANameCannotBeAddedTwice) {
  behaviour.push = push_reasoning;
  const tessera_plugin_chat_format table = table_of(TESSERA_PLUGIN_FINDS_REASONING, "x");
  ChatFormats formats;
  EXPECT_TRUE(formats.add(*make_plugin_chat_format(&table)).ok());
  EXPECT_THAT(formats.add(*make_plugin_chat_format(&table)).message(), HasSubstr("\"a_format\" is registered already"));
  EXPECT_NE(formats.find("a_format", Part::kReasoning), nullptr);
  EXPECT_EQ(formats.find("a_format", Part::kCalls), nullptr);
}

}  // namespace
}  // namespace tessera::plugin
