// Catches: a stream interval that delays the first token, loses tokens between two events, or holds back the end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/server/openai/answers_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::chat_style;
using test::completion_style;
using test::end_of;
using test::events;
using test::generate_style;
using test::last;
using test::on_event;
using test::step;
using ::testing::ElementsAre;

// Gives the answer eight steps: the tokens "1" to "7", then the end. After each step the stream sends some events or
// none. Returns one text for each step. The text joins the values that the events of this step have at `path`.
std::vector<std::string> streamed(Answer& answer, const std::string& path) {
  Completion end = end_of(7, 5, 0);
  std::vector<std::string> texts;
  for (int token = 1; token <= 8; ++token) {
    const std::string text = std::to_string(token);
    const std::string sent = token <= 7 ? on_event(answer, 0, step(text.c_str()), nullptr)
                                        : on_event(answer, 0, last("", FinishReason::kLength), &end);
    std::string joined;
    for (const Json& event : events(sent)) {
      const Json found = at(event, path);
      if (!found.as_string().starts_with("nothing at")) joined += found.as_string();
    }
    texts.push_back(joined);
  }
  return texts;
}

TEST(StreamInterval, TokensBetweenTwoEventsComeWithTheNext) {
  ChatStyle chat = chat_style(true);
  chat.stream.interval = 3;
  EXPECT_THAT(streamed(*make_chat_answer(chat), "choices.0.delta.content"),
              ElementsAre("1", "", "23", "", "", "456", "", "7"));
  CompletionStyle completion = completion_style(true);
  completion.stream.interval = 3;
  EXPECT_THAT(streamed(*make_completion_answer(completion), "choices.0.text"),
              ElementsAre("1", "", "23", "", "", "456", "", "7"));
  GenerateStyle generate = generate_style(true);
  generate.stream_interval = 3;
  EXPECT_THAT(streamed(*make_generate_answer(std::move(generate)), "text"),
              ElementsAre("1", "", "123", "", "", "123456", "", "1234567"));
}

}  // namespace
}  // namespace tessera
