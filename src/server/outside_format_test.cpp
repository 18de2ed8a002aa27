// Catches: calls of a format from outside that are numbered, named or cut wrongly, arguments that are handed on
// although they are no JSON, a format's error that is lost, and one that takes the name of the server's own. Formats in
// a whole server: tests/plugin/chat_formats_test.py.
#include "tessera/server/outside_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tessera/server/chat_text.h"
#include "tessera/server/served_model.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;
using Kind = ChatPiece::Kind;
using Pieces = std::vector<ChatPiece>;

// Gives what a test wants, whatever the text.
class Scripted final : public ChatFormat {
 public:
  Scripted(std::string name, std::deque<Result<Pieces>> answers)
      : name_(std::move(name)), answers_(std::move(answers)) {}
  const std::string& name() const override { return name_; }
  bool finds(Part) const override { return true; }
  bool reads_special_tokens() const override { return false; }
  Result<std::unique_ptr<ChatParser>> begin(const Request&) const override {
    return std::unique_ptr<ChatParser>(std::make_unique<Parser>(answers_));
  }

 private:
  struct Parser final : ChatParser {
    explicit Parser(std::deque<Result<Pieces>> given) : answers(std::move(given)) {}
    Result<Pieces> push(std::string_view) override {
      Result<Pieces> next = std::move(answers.front());
      answers.pop_front();
      return next;
    }
    Result<Pieces> finish() override { return answers.empty() ? Result<Pieces>(Pieces{}) : push(""); }
    std::deque<Result<Pieces>> answers;
  };
  std::string name_;
  std::deque<Result<Pieces>> answers_;
};

std::shared_ptr<const ChatFormat> format_of(std::deque<Result<Pieces>> answers, std::string name = "scripted") {
  return std::make_shared<Scripted>(std::move(name), std::move(answers));
}

OutsideCalls calls_of(std::deque<Result<Pieces>> answers) {
  static const Json tools = *Json::parse(R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])", "tools");
  static int ids = 0;
  return *OutsideCalls::begin(format_of(std::move(answers)), tools, [] { return "id" + std::to_string(ids++); });
}

TEST(OutsideCalls, ArgumentsGoToTheCallThatWasBegunLast) {
  OutsideCalls calls = calls_of({Pieces{{Kind::kContent, "a"}, {Kind::kCall, "f"}, {Kind::kArguments, "{\"x\""}},
                                 Pieces{{Kind::kArguments, ": 1}"}, {Kind::kCall, "g"}, {Kind::kArguments, "{}"}}});
  const ToolText first = *calls.push("1");
  EXPECT_EQ(first.content, "a");
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "f");
  EXPECT_EQ(first.calls[0].arguments, "{\"x\"");
  EXPECT_NE(first.calls[0].id, "");
  const ToolText second = *calls.push("2");
  ASSERT_EQ(second.calls.size(), 2u);
  EXPECT_EQ(second.calls[0].index, 0);
  EXPECT_EQ(second.calls[0].id, "") << "the call was begun before";
  EXPECT_EQ(second.calls[0].arguments, ": 1}");
  EXPECT_EQ(second.calls[1].index, 1);
  EXPECT_EQ(second.calls[1].name, "g");
}

TEST(OutsideCalls, WhatFollowsBrokenArgumentsIsContent) {
  OutsideCalls calls = calls_of({Pieces{{Kind::kCall, "f"}, {Kind::kArguments, "{\"x\": o"}},
                                 Pieces{{Kind::kArguments, "ops}"}, {Kind::kCall, "g"}, {Kind::kArguments, "{} !"}}});
  const ToolText first = *calls.push("1");
  EXPECT_EQ(first.calls[0].arguments, "{\"x\": ");
  EXPECT_EQ(first.content, "o");
  const ToolText second = *calls.push("2");
  EXPECT_EQ(second.content, "ops}!");
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_EQ(second.calls[0].arguments, "{} ");
}

TEST(OutsideCalls, WrongCallsAreTheFormatsFault) {
  EXPECT_THAT(calls_of({Pieces{{Kind::kCall, "h"}}}).push("1").status().message(),
              HasSubstr("chat format scripted: it gave a call of \"h\", which is no function of the request's"));
  EXPECT_THAT(
      calls_of({Pieces{{Kind::kCall, "f"}, {Kind::kArguments, "{"}, {Kind::kCall, "g"}}}).push("1").status().message(),
      HasSubstr("it began a call of \"g\" before the arguments of \"f\" were a whole object"));
}

TEST(ChatText, AFormatsErrorIsKeptAndNothingMoreComes) {
  ChatTextStyle style{.reasoning_parser = "scripted"};
  style.reasoning_format = format_of({Pieces{{Kind::kReasoning, "r"}, {Kind::kContent, "c"}},
                                      internal_error("it is tired"), Pieces{{Kind::kContent, "more"}}});
  ChatText text(style);
  const ChatPieces first = text.push("1");
  EXPECT_EQ(first.reasoning, "r");
  EXPECT_EQ(first.content, "c");
  EXPECT_TRUE(text.status().ok());
  EXPECT_TRUE(text.push("2").empty());
  EXPECT_EQ(text.status().message(), "it is tired");
  EXPECT_TRUE(text.push("3").empty());
  EXPECT_TRUE(text.finish().empty());
}

TEST(ServedModel, AFormatsNameIsNotOneOfTheServers) {
  for (const char* name : {"hermes", "qwen3", "none"}) {
    ChatFormats formats;
    ASSERT_TRUE(formats.add(format_of({}, name)).ok());
    const Status status = ServedModel::check({}, formats);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(std::string("chat format \"") + name + "\" of a plugin: --"));
  }
  ChatFormats formats;
  ASSERT_TRUE(formats.add(format_of({}, "mine")).ok());
  EXPECT_TRUE(ServedModel::check({.tool_call_parser = "mine", .reasoning_parser = "mine"}, formats).ok());
  EXPECT_THAT(ServedModel::check({.tool_call_parser = "yours"}, formats).message(), HasSubstr("mine or none"));
}

}  // namespace
}  // namespace tessera
