// A scheduler whose model keeps recurrent states, so that only checkpoints can be reused. Catches: a prompt that reuses
// less of an earlier one than the last checkpoint before their last common token; a checkpoint that is missing where
// messages begin; and forwards that end at places which save nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera {
namespace {

using test::all_steps;
using test::kPageSize;
using ::testing::ElementsAre;

class StateReuse : public ::testing::Test {
 protected:
  // Runs a prompt of several parts, each of which is a first token and a length, and returns its steps. The parts begin
  // with the prompt's messages, so all but the first one begin at a branch token if `has_messages`.
  struct Part {
    std::int32_t from;
    std::int32_t count;
  };
  std::vector<std::string> run(const std::vector<Part>& parts, bool has_messages = true) {
    auto made = std::make_unique<Sequence>();
    made->id = RequestId(++runs_);
    made->order = runs_;
    for (const Part& part : parts) {
      if (!made->request.prompt.empty() && has_messages)
        made->request.branch_tokens.push_back(std::ssize(made->request.prompt));
      for (std::int32_t i = 0; i < part.count; ++i) made->request.prompt.emplace_back(part.from + i);
    }
    made->request.stop.max_new_tokens = 1;
    made->tokens = made->request.prompt;
    scheduler_.add(std::move(made));
    return all_steps(scheduler_);
  }

  explicit StateReuse(bool takes_checkpoints = true)
      : scheduler_({.limits = {.max_tokens = kChunk}, .takes_checkpoints = takes_checkpoints},
                   {.groups = {{.name = "paged", .num_pages = 1000},
                               {.name = "state", .kind = ir::CacheGroup::Kind::kState, .num_pages = 40}},
                    .page_size = kPageSize}) {}

  static constexpr std::int64_t kChunk = 200;
  std::int64_t runs_ = 0;
  Scheduler scheduler_;
};

constexpr std::int32_t kSystem = 0;
constexpr std::int32_t kTurn = 9000;

TEST_F(StateReuse, APromptIsReusedFromTheSecondSightOn) {
  EXPECT_THAT(run({{kSystem, 150}, {1000, 102}, {kTurn, 3}}), ElementsAre("1:200", "1:55*"));
  EXPECT_THAT(run({{kSystem, 150}, {1000, 102}, {kTurn, 3}}), ElementsAre("2:3*")) << "252 tokens are reused";
}

TEST_F(StateReuse, AnotherQuestionReusesTheSystemPromptAtSecondSight) {
  run({{kSystem, 150}, {1000, 102}, {kTurn, 3}});
  EXPECT_THAT(run({{kSystem, 150}, {2000, 102}, {kTurn, 3}}), ElementsAre("2:107*")) << "148 are reused";
}

TEST_F(StateReuse, TheNextTurnReusesThePromptBeforeIt) {
  run({{kSystem, 150}, {1000, 102}, {kTurn, 3}});
  // The answer is rendered in another way than the model wrote it, so the text parts from it after two tokens.
  EXPECT_THAT(run({{kSystem, 150}, {1000, 102}, {kTurn, 2}, {3000, 80}, {kTurn, 3}}), ElementsAre("2:85*"))
      << "252 tokens are reused";
}

// Without messages, only the ends of chunks have checkpoints until a second prompt shows where they part.
TEST_F(StateReuse, OtherTextsAreReusedFromTheThirdSightOn) {
  const std::vector<Part> first = {{kSystem, 350}, {1000, 50}};
  EXPECT_THAT(run(first, /*has_messages=*/false), ElementsAre("1:200", "1:200*"));
  EXPECT_THAT(run({{kSystem, 350}, {2000, 50}}, /*has_messages=*/false), ElementsAre("2:196", "2:4*"))
      << "the first chunk is reused, and two places have checkpoints";
  EXPECT_THAT(run({{kSystem, 350}, {3000, 50}}, /*has_messages=*/false), ElementsAre("3:52*"));
  EXPECT_THAT(run(first, /*has_messages=*/false), ElementsAre("4:4*"));
}

class StateReuseByForwards : public StateReuse {
 protected:
  StateReuseByForwards() : StateReuse(/*takes_checkpoints=*/false) {}
};

// A plugin's operators may not store checkpoints among their rows.
TEST_F(StateReuseByForwards, AForwardEndsAtEachCheckpoint) {
  EXPECT_THAT(run({{kSystem, 150}, {1000, 102}, {kTurn, 3}}), ElementsAre("1:148", "1:104", "1:3*"));
  EXPECT_THAT(run({{kSystem, 150}, {2000, 102}, {kTurn, 3}}), ElementsAre("2:104", "2:3*")) << "148 are reused";
}

TEST_F(StateReuse, ShortMessagesCostNoForwards) {
  EXPECT_THAT(run({{kSystem, 40}, {1000, 10}, {kTurn, 3}}), ElementsAre("1:53*"));
  EXPECT_THAT(run({{2000, 100}, {1000, 20}, {kTurn, 3}}), ElementsAre("2:123*"))
      << "the end of the system prompt is near the prompt's end";
}

}  // namespace
}  // namespace tessera
