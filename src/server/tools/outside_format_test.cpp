// Catches: a plugin format's calls that are numbered, named or split wrongly; arguments that are passed on although
// they are not JSON; a plugin's error that is lost; and a plugin format that is accepted although it has the name of a
// built-in format. tests/plugin/chat_formats_test.py tests formats in a whole server.
#include "tessera/server/tools/outside_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "tessera/server/openai/chat_request.h"
#include "tessera/server/openai/chat_text.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/served_model.h"
#include "tessera/server/test_model.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = ChatPiece::Kind;
using Pieces = std::vector<ChatPiece>;

// A format that returns scripted pieces for any text.
class Scripted final : public ChatFormat {
 public:
  Scripted(std::string name, std::deque<Result<Pieces>> answers)
      : name_(std::move(name)), answers_(std::move(answers)) {}
  const std::string& name() const override { return name_; }
  bool finds(Part) const override { return true; }
  bool reads_special_tokens() const override { return special; }
  ReasoningMarks reasoning_marks() const override { return marks; }
  Result<std::unique_ptr<ChatParser>> begin(const Request& request) const override {
    starts.push_back(request.start);
    if (!begins) return invalid_argument("it does not begin");
    return std::unique_ptr<ChatParser>(std::make_unique<Parser>(answers_));
  }

  bool special = false;
  bool begins = true;
  ReasoningMarks marks = {.opening = "[[why ", .closing = "]]"};
  mutable std::vector<ReasoningStart> starts{};  // the `start` of each parser that was begun

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

std::shared_ptr<Scripted> format_of(std::deque<Result<Pieces>> answers, std::string name = "scripted") {
  return std::make_shared<Scripted>(std::move(name), std::move(answers));
}

OutsideCalls calls_of(std::deque<Result<Pieces>> answers) {
  static const Json tools = *Json::parse(R"([{"function": {"name": "f"}}, {"function": {"name": "g"}}])", "tools");
  static int ids = 0;
  return *OutsideCalls::begin(format_of(std::move(answers)), tools, [] { return "id" + std::to_string(ids++); });
}

TEST(OutsideCalls, ArgumentsBelongToTheLatestCall) {
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

TEST(OutsideCalls, TextAfterBrokenArgumentsIsContent) {
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

TEST(OutsideCalls, InvalidCallsAreTheFormatsError) {
  EXPECT_THAT(calls_of({Pieces{{Kind::kCall, "h"}}}).push("1").status().message(),
              HasSubstr("chat format scripted: it called \"h\", which is not a function of the request"));
  EXPECT_THAT(
      calls_of({Pieces{{Kind::kCall, "f"}, {Kind::kArguments, "{"}, {Kind::kCall, "g"}}}).push("1").status().message(),
      HasSubstr("it began a call of \"g\" before the arguments of \"f\" were a whole object"));
}

TEST(ChatText, AFormatsErrorIsKeptAndEndsTheText) {
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

// Prepares a chat request for a model that uses this format for reasoning or for calls.
ApiResult<ApiJob> prepared(const std::shared_ptr<Scripted>& format, ChatFormat::Part part, const std::string& members) {
  ServedModel model = test::test_model();
  const bool calls = part == ChatFormat::Part::kCalls;
  (calls ? model.tool_call_parser : model.reasoning_parser) = "scripted";
  (calls ? model.call_format : model.reasoning_format) = format;
  return prepare_chat(model, "{" + members + "}");
}

TEST(ChatRequest, TheFormatsMarksTellWhereTheTextBegins) {
  const auto start = [](const std::string& members) {
    const auto format = format_of({});
    EXPECT_TRUE(prepared(format, ChatFormat::Part::kReasoning, members).ok()) << members;
    return format->starts;
  };
  const auto asked = [](const std::string& behind) {
    return R"("messages": [{"role": "user", "content": "hi"}], "chat_template": "{{ messages[0].content }})" + behind +
           '"';
  };
  const auto goes_on = [](const std::string& begun) {
    return R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ")" + begun +
           R"("}], "continue_final_message": true, "add_generation_prompt": false)";
  };
  using enum ReasoningStart;
  EXPECT_THAT(start(asked("")), ElementsAre(kBefore));
  EXPECT_THAT(start(asked("[[why ")), ElementsAre(kInside));
  EXPECT_THAT(start(asked("<think>")), ElementsAre(kBefore)) << "the marks of another form";
  EXPECT_THAT(start(goes_on("[[why so")), ElementsAre(kInside));
  EXPECT_THAT(start(goes_on("[[why so]] I")), ElementsAre(kBehind));
  EXPECT_THAT(start(goes_on("I </think> so")), ElementsAre(kBefore)) << "and the format still reads it";
}

TEST(LimitReasoning, AFormatWithoutAMarkHasNoLimit) {
  ServedModel model = test::test_model();
  const auto format = format_of({});
  model.reasoning_format = format;
  ChatTextStyle style;
  style.reasoning_format = format;
  const auto limited = [&] {
    model.reasoning_end = reasoning_end_of(model);
    return limit_reasoning(model, style, 4).has_value();
  };
  EXPECT_TRUE(limited());
  format->marks.opening = "";
  EXPECT_FALSE(limited()) << "the answer would count as reasoning";
  format->marks = {.opening = "[[why ", .closing = ""};
  EXPECT_FALSE(limited());
}

TEST(ChatRequest, AFormatTellsWhetherItReadsSpecialTokens) {
  const std::string members =
      R"("messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": {"name": "f"}}],
         "chat_template": "{{ messages[0].content }}{{ tools }}")";
  for (const ChatFormat::Part part : {ChatFormat::Part::kCalls, ChatFormat::Part::kReasoning}) {
    for (const bool special : {false, true}) {
      const auto format = format_of({});
      format->special = special;
      const bool calls = part == ChatFormat::Part::kCalls;
      ApiResult<ApiJob> job =
          prepared(format, part, calls ? members : R"("messages": [{"role": "user", "content": "hi"}])");
      ASSERT_TRUE(job.ok()) << job.error().message;
      EXPECT_EQ(job->requests[0].skip_special_tokens, !special);
    }
  }
}

TEST(ChatRequest, AFormatThatFailsToBeginComputesNothing) {
  const auto format = format_of({});
  format->begins = false;
  ApiResult<ApiJob> job =
      prepared(format, ChatFormat::Part::kReasoning, R"("messages": [{"role": "user", "content": "hi"}])");
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().http_status, 500) << "the fault is the server's, whatever code the format gave";
  EXPECT_THAT(job.error().message, HasSubstr("it does not begin"));
}

TEST(ServedModel, RefusesAPluginFormatWithABuiltInName) {
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
