// Catches: an answer without graph_info although its client asked for it; graph_info that is attached to the wrong
// choice or chunk; and graph_info that no client asked for.
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
using test::parsed;
using test::step;
using ::testing::ElementsAre;

// Returns a request's completion: the prompt of 13 tokens ran on a graph of 16 tokens, then three tokens were decoded.
Completion end_with_graphs() {
  Completion end = end_of(3, 7, 5);
  end.graph_uses = {{.phase = ForwardPhase::kMixed,
                     .how = {RunnerKind::kPrefill, 16, Reason::kPaddedToSize},
                     .count = {.forwards = 1, .tokens = 13, .padding = 3}},
                    {.phase = ForwardPhase::kDecode,
                     .how = {RunnerKind::kEager, 0, Reason::kReplayFailed},
                     .count = {.forwards = 2, .tokens = 2, .padding = 0}}};
  return end;
}
constexpr const char* kGraphForwards =
    R"([{"phase": "mixed", "runner": "prefill", "size": 16, "reason": "padded_to_size", "count": 1, "tokens": 13, )"
    R"("padding": 3}, {"phase": "decode", "runner": "eager", "size": 0, "reason": "replay_failed", "count": 2, )"
    R"("tokens": 2, "padding": 0}])";

TEST(GraphInfo, OpenAiAnswersHaveItAtTheTopLevel) {
  for (const bool asked : {true, false}) {
    ChatStyle chat = chat_style(false);
    chat.graph_info = asked;
    CompletionStyle completion = completion_style(false);
    completion.graph_info = asked;
    for (const std::unique_ptr<Answer>& answer : {make_chat_answer(chat), make_completion_answer(completion)}) {
      Completion end = end_with_graphs();
      on_event(*answer, 0, last("a", FinishReason::kStop), &end);
      const Json body = parsed(answer->body());
      EXPECT_EQ(body.find("graph_info") != nullptr, asked);
      if (!asked) continue;
      EXPECT_EQ(at(body, "graph_info.0.index"), Json(0));
      EXPECT_EQ(at(body, "graph_info.0.cached_tokens"), Json(5));
      EXPECT_EQ(at(body, "graph_info.0.forwards").dump(), kGraphForwards);
    }
  }
}

TEST(GraphInfo, TowerForwardsAreListedIfImagesWereComputed) {
  Completion end = end_with_graphs();
  end.tower_uses.add_of({.images = 3, .patches = 4200, .how = {.size = 4224, .reason = VisionReason::kTooLarge}}, 1,
                        1400);
  ChatStyle chat = chat_style(false);
  chat.graph_info = true;
  const std::unique_ptr<Answer> answer = make_chat_answer(chat);
  on_event(*answer, 0, last("a", FinishReason::kStop), &end);
  const Json body = parsed(answer->body());
  EXPECT_EQ(at(body, "graph_info.0.forwards").dump(), kGraphForwards);
  EXPECT_EQ(
      at(body, "graph_info.0.tower").dump(),
      R"([{"size": 0, "reason": "above_largest_size", "count": 1, "images": 1, "patches": 1400, "padding": 24}])");
}

TEST(GraphInfo, StreamsSendItWithEachChoicesLastChunk) {
  ChatStyle chat = chat_style(true);
  chat.graph_info = true;
  chat.n = 2;
  CompletionStyle completion = completion_style(true);
  completion.n = 2;
  completion.graph_info = true;
  for (const std::unique_ptr<Answer>& answer : {make_chat_answer(chat), make_completion_answer(completion)}) {
    Completion ends[] = {end_of(1, 7, 0), end_with_graphs()};
    std::string stream;
    for (const std::size_t index : {0, 1}) stream += on_event(*answer, index, step("a"), nullptr);
    for (const std::size_t index : {1, 0})
      stream += on_event(*answer, index, last("b", FinishReason::kStop), &ends[index]);
    std::vector<std::int64_t> reported;
    for (const Json& chunk : events(stream)) {
      const bool ended = !at(chunk, "choices.0.finish_reason").is_null();
      EXPECT_EQ(chunk.find("graph_info") != nullptr, ended) << chunk.dump();
      if (!ended) continue;
      EXPECT_EQ(at(chunk, "graph_info.0.index"), at(chunk, "choices.0.index"));
      reported.push_back(at(chunk, "graph_info.0.index").as_int());
      EXPECT_EQ(at(chunk, "graph_info.0.forwards").dump(), reported.back() == 1 ? kGraphForwards : "[]");
    }
    EXPECT_THAT(reported, ElementsAre(1, 0));
  }
}

TEST(GraphInfo, GenerateSendsItInTheLastMetaInfo) {
  for (const bool stream : {true, false}) {
    GenerateStyle style = generate_style(stream);
    style.choices[0].graph_info = true;
    const auto answer = make_generate_answer(style);
    Completion end = end_with_graphs();
    const std::string first = on_event(*answer, 0, step("a"), nullptr);
    const std::string second = on_event(*answer, 0, last("", FinishReason::kStop), &end);
    if (stream) {
      EXPECT_EQ(at(events(first)[0], "meta_info").find("graph_info"), nullptr);
    }
    const Json body = stream ? events(second)[0] : parsed(answer->body());
    EXPECT_EQ(at(body, "meta_info.graph_info.cached_tokens"), Json(5));
    EXPECT_EQ(at(body, "meta_info.graph_info.forwards").dump(), kGraphForwards);
  }
}

}  // namespace
}  // namespace tessera
