// Requests may give embeddings instead of token ids. The engine holds them in rows, one for each token, until the
// prompt is computed. Catches: embeddings that are used at the wrong tokens; embeddings that come from another
// request's rows; lost rows; and memory taken for requests without embeddings. The prompts are cut into chunks, wait
// for rows, and are preempted and computed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tessera/engine/engine_test_util.h"
#include "tessera/engine/schedule/scheduler_test_util.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {
namespace {

using test::finish_step;
using test::next_step;
using test::request;
using test::run_one;
using test::sequence;
using test::shown;
using test::small_options;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kVocabSize = 512;

class InputEmbeds : public test::EngineRuns {};
INSTANTIATE_TEST_SUITE_P(, InputEmbeds, ::testing::Bool(), test::overlap_name);

// Returns the request with each id replaced by the embedding that the checkpoint has for it.
Request embedded(const Engine& engine, Request ids) {
  const std::int64_t hidden = engine.config().hidden_size;
  const Checkpoint checkpoint = *Checkpoint::open(small_options().model_path);
  const StoredTensor table = *checkpoint.get("model.embed_tokens.weight", {kVocabSize, hidden});
  EXPECT_EQ(table.data.size(), static_cast<std::size_t>(kVocabSize * hidden) * 2) << "bfloat16";
  for (const TokenId id : ids.prompt) {
    for (std::int64_t i = 0; i < hidden; ++i) {
      std::uint16_t half = 0;
      std::memcpy(&half, table.data.data() + (id.value() * hidden + i) * 2, 2);
      ids.input_embeds.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
    }
  }
  ids.prompt.clear();
  return ids;
}

TEST_P(InputEmbeds, GiveTheSameTextsAsTheirTokens) {
  const std::unique_ptr<Engine> engine = make();
  const std::vector<TokenId> want = run_one(*engine, request(20, 8)).output_ids;
  Request given = embedded(*engine, request(20, 8));
  const std::vector<Request> both = {given, request(9, 5), given};
  const Result<std::vector<Completion>> done = engine->run(both);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  EXPECT_EQ((*done)[0].output_ids, want);
  EXPECT_EQ((*done)[2].output_ids, want);
  EXPECT_EQ((*done)[2].cached_tokens, 0) << "nobody knows which tokens they are of";
  EXPECT_EQ((*done)[1].output_ids, run_one(*engine, request(9, 5)).output_ids);
  given.input_embeds.pop_back();
  EXPECT_THAT(engine->submit(given).status().message(), HasSubstr("is not a multiple of the hidden size"));
}

TEST_P(InputEmbeds, GiveTheSameTextsInChunksAndAfterPreemption) {
  EngineOptions options = small_options();
  options.max_total_tokens = 80;
  const std::unique_ptr<Engine> engine = make(options);
  std::vector<Request> given;
  std::vector<std::vector<TokenId>> want;
  for (const std::int32_t salt : {1, 2, 3}) {
    const Request ids = request(16 + salt, 40, salt);
    want.push_back(run_one(*engine, ids).output_ids);
    given.push_back(embedded(*engine, ids));
  }
  const std::int64_t before = engine->stats().preemptions;
  for (int round = 0; round < 3; ++round) {
    const Result<std::vector<Completion>> done = engine->run(given);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < given.size(); ++i) EXPECT_EQ((*done)[i].output_ids, want[i]) << i;
  }
  EXPECT_GT(engine->stats().preemptions, before) << "nothing was tried";
}

std::unique_ptr<Sequence> with_embeddings(std::int64_t id, std::int64_t prompt, std::int64_t new_tokens) {
  std::unique_ptr<Sequence> made = sequence(id, prompt, new_tokens);
  for (std::int64_t i = 0; i < 2 * prompt; ++i) made->request.input_embeds.push_back(static_cast<float>(1000 * id + i));
  return made;
}

// Two prompts of 6 tokens need 6 embedding rows each, and there are only 8 rows. A row has two values.
TEST(InputEmbedsScheduling, RowsAreHeldUntilThePromptIsComputed) {
  Scheduler scheduler({.limits = {.max_tokens = 4}}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(8);
  for (const std::int64_t id : {1, 2}) scheduler.add(with_embeddings(id, 6, 2));
  const auto expect_step = [&](const char* entries, const std::vector<std::int32_t>& rows, std::int64_t first_row,
                               float first, std::size_t values) {
    const ScheduledBatch step = next_step(scheduler);
    EXPECT_EQ(shown(step), entries);
    EXPECT_EQ(step.batch.check().message(), "");
    EXPECT_EQ(step.batch.embedding_rows, rows) << entries;
    ASSERT_EQ(step.batch.embedding_writes.size(), values == 0 ? 0u : 1u) << entries;
    if (values > 0) {
      EXPECT_EQ(step.batch.embedding_writes[0].first_row, first_row) << entries;
      EXPECT_EQ(step.batch.embedding_writes[0].values.size(), values) << entries;
      EXPECT_EQ(step.batch.embedding_writes[0].values[0], first) << entries;
    }
    finish_step(scheduler, step);
  };
  expect_step("1:4", {0, 1, 2, 3}, 0, 1000, 8);
  expect_step("1:2*", {4, 5}, 4, 1008, 4);
  expect_step("1:1* 2:3", {-1, 0, 1, 2}, 0, 2000, 6);
  expect_step("2:3*", {3, 4, 5}, 3, 2006, 6);
  expect_step("2:1*", {}, 0, 0, 0);
  EXPECT_TRUE(scheduler.idle());
}

TEST(InputEmbedsScheduling, PreemptionReturnsRowsAndWritesThemAgain) {
  Scheduler scheduler({.limits = {.max_tokens = 4}}, paged_cache(100, test::kPageSize));
  scheduler.grow_embeddings(6);
  scheduler.add(with_embeddings(1, 6, 1));
  finish_step(scheduler, next_step(scheduler));
  std::unique_ptr<Sequence> urgent = with_embeddings(2, 5, 1);
  urgent->request.priority = 1;
  scheduler.add(std::move(urgent));
  std::vector<float> firsts;
  std::vector<std::string> steps;
  while (!scheduler.idle()) {
    const ScheduledBatch step = next_step(scheduler);
    steps.push_back(shown(step));
    for (const EmbeddingWrite& write : step.batch.embedding_writes) firsts.push_back(write.values[0]);
    finish_step(scheduler, step);
  }
  EXPECT_THAT(steps, ElementsAre("2:4", "2:1*", "1:4", "1:2*"));
  EXPECT_THAT(firsts, ElementsAre(2000, 2008, 1000, 1008));
}

TEST_P(InputEmbeds, TakeMemoryWhenTheFirstOnesCome) {
  const std::unique_ptr<Engine> engine = make();
  run_one(*engine, request(20, 2));
  const auto static_inputs = [&] { return engine->stats().graphs->memory[MemoryUse::kStaticInputs]; };
  const std::int64_t before = static_inputs();
  EXPECT_EQ(before, engine->stats().graphs->predicted_memory[MemoryUse::kStaticInputs]);
  run_one(*engine, embedded(*engine, request(20, 2)));
  EXPECT_GE(static_inputs(), before + 32 * engine->config().hidden_size * 4) << "a forward's tokens";
}

}  // namespace
}  // namespace tessera
