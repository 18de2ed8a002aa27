// Helpers of the scheduler's tests: sequences to schedule, and the engine's side of a step.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/engine/schedule/scheduler.h"

namespace tessera::test {

inline constexpr std::int64_t kPageSize = 4;

// Makes a sequence with a prompt of its own: no two sequences begin alike.
inline std::unique_ptr<Sequence> sequence(std::int64_t id, std::int64_t prompt, std::int64_t new_tokens,
                                          bool score = false) {
  auto made = std::make_unique<Sequence>();
  made->id = RequestId(id);
  made->order = id;
  for (std::int64_t i = 0; i < prompt; ++i) made->request.prompt.emplace_back(static_cast<std::int32_t>(100 * id + i));
  made->request.stop.max_new_tokens = new_tokens;
  made->request.score = score;
  made->tokens = made->request.prompt;
  made->seed = id * 7;
  return made;
}

inline ScheduledBatch next_step(Scheduler& scheduler) {
  ScheduledBatch step;
  scheduler.next(step);
  return step;
}

// Does what the engine does after the forward: gives a token to every sampled row and removes finished sequences. The
// token depends on its position, so equal prompts get equal texts.
inline std::vector<std::int64_t> finish_step(Scheduler& scheduler, const ScheduledBatch& step) {
  scheduler.mark_submitted(step);
  std::vector<std::int64_t> finished;
  for (const ScheduledBatch::Entry& entry : step.entries) {
    if (entry.row >= 0) Scheduler::settle(entry, TokenId(static_cast<std::int32_t>(1000 + entry.next_token)));
    if (entry.sequence->is_done()) finished.push_back(entry.sequence->id.value());
  }
  for (const std::int64_t id : finished) EXPECT_NE(scheduler.remove(RequestId(id), false), nullptr);
  return finished;
}

// Prints a step. In "1:8 2:3*", sequence 1 gets 8 tokens, and sequence 2 gets 3 and is sampled. In "3:4++", sequence 3
// gets 4 tokens, and two rows of its prompt are wanted.
inline std::string shown(const ScheduledBatch& step) {
  std::ostringstream text;
  for (const ScheduledBatch::Entry& entry : step.entries) {
    text << (text.tellp() > 0 ? " " : "") << entry.sequence->id.value() << ":" << entry.new_tokens
         << (entry.row >= 0 ? "*" : "") << std::string(static_cast<std::size_t>(entry.prompt_rows), '+');
  }
  return text.str();
}

inline std::vector<std::string> all_steps(Scheduler& scheduler) {
  std::vector<std::string> steps;
  while (!scheduler.idle() && steps.size() < 100) {
    const ScheduledBatch step = next_step(scheduler);
    steps.push_back(shown(step));
    finish_step(scheduler, step);
  }
  return steps;
}

}  // namespace tessera::test
