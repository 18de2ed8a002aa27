// Catches: arguments of a call that was cut off and that count as whole; and history with such arguments that the
// server refuses although it has sent them itself.
#include "tessera/server/tools/call_arguments.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(CallArguments, OnlyObjectsAreWhole) {
  for (const char* whole : {"", "{}", " {\"x\": [1, {}]} ", "{\"x\": 1, \"x\": 2}", "{\"x\": 1e999}"})
    EXPECT_TRUE(are_whole_arguments(whole)) << whole;
  for (const char* broken : {"{", "{\"x\": ", "{\"x\": 1}}", " ", "[]", "5", "\"x\"", "x"})
    EXPECT_FALSE(are_whole_arguments(broken)) << broken;
}

TEST(CallArguments, BrokenArgumentsAreShownAsText) {
  EXPECT_EQ(shown_arguments(""), Json::object());
  EXPECT_EQ(shown_arguments("{\"x\": 1}").dump(), R"({"x": 1})");
  EXPECT_EQ(shown_arguments("{\"x\": "), Json("{\"x\": "));
  EXPECT_EQ(shown_arguments("[1]"), Json("[1]"));
  EXPECT_EQ(shown_arguments("{\"x\": 1, \"x\": 2}"), Json("{\"x\": 1, \"x\": 2}"));
}

TEST(CallArguments, ObjectsStandForTexts) {
  const auto messages = [](const std::string& arguments) {
    return *Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "2", "function": {"name": "g", "arguments": )" +
                            arguments + "}}]}]",
                        "messages");
  };
  EXPECT_FALSE(with_argument_objects(messages("{}")));
  EXPECT_EQ(with_argument_objects(messages(R"("{\"x")")), messages(R"({"arguments": "{\"x"})"));
}

}  // namespace
}  // namespace tessera
