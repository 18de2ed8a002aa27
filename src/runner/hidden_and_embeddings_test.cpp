// Catches: hidden states of another row, of padding or from after the head overwrote them; embeddings given to another
// token, left over from the last forward or rounded to another type; either one losing the graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/model/tensor_copy.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using testing::greatest_difference;
using ::testing::HasSubstr;
using testing::ids;
using testing::make_batch;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

constexpr double kTolerance = 1e-4;

// 30 tokens, padded to 40.
const std::vector<TestRequest> kTwo = {{ids(13, 5)}, {ids(17, 2)}};

std::vector<float> hidden_states(RunnerBench& bench, const ForwardBatch& batch, RunnerKind runner,
                                 bool force_eager = false) {
  std::vector<float> hidden(static_cast<std::size_t>(batch.num_tokens() * bench.runner->hidden_size()), NAN);
  std::vector<float> logits(batch.wanted_rows.size() * static_cast<std::size_t>(bench.runner->vocab_size()));
  const Result<ForwardOutputs> outputs =
      bench.runner->forward({.batch = batch, .logits = logits, .hidden_states = hidden, .force_eager = force_eager});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  if (!outputs.ok()) return {};
  EXPECT_EQ(outputs->decision.runner, runner) << reason_text(outputs->decision.reason);
  return hidden;
}

std::vector<float> row(const std::vector<float>& all, std::size_t r, std::int64_t width) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r) * width;
  return {begin, begin + width};
}

TEST(HiddenStates, AreTheSameThroughGraphsAndEagerly) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16}) {
    const double tolerance = dtype == ir::DType::kFloat32 ? kTolerance : 0.06;
    RunnerBench bench = make_captured("llama", small_options(), dtype);
    const std::int64_t width = bench.runner->hidden_size();
    const ForwardBatch prompts = make_batch(kTwo, Rows::kLast);
    const std::vector<float> eager = hidden_states(bench, prompts, RunnerKind::kEager, true);
    EXPECT_LE(greatest_difference(hidden_states(bench, prompts, RunnerKind::kPrefill), eager), tolerance);
    RunnerOptions isolated = small_options();
    isolated.memory_plan = MemoryPlanKind::kIsolated;
    RunnerBench apart = make_captured("llama", isolated, dtype);
    EXPECT_LE(greatest_difference(hidden_states(apart, prompts, RunnerKind::kPrefill), eager), tolerance);
    // The last token of each request again, by the decode graph.
    const ForwardBatch last = make_batch({{ids(13, 5), 12}, {ids(17, 2), 16}}, Rows::kAll);
    const std::vector<float> decoded = hidden_states(bench, last, RunnerKind::kDecode);
    EXPECT_LE(greatest_difference(row(decoded, 0, width), row(eager, 12, width)), tolerance);
    EXPECT_LE(greatest_difference(row(decoded, 1, width), row(eager, 29, width)), tolerance);
    EXPECT_GT(greatest_difference(row(eager, 12, width), row(eager, 29, width)), 2 * tolerance) << "rows differ";
  }
}

TEST(HiddenStates, SpaceForAnotherNumberIsRefused) {
  RunnerBench bench = make_captured("llama", small_options());
  std::vector<float> hidden(7);
  EXPECT_THAT(
      bench.runner->forward({.batch = make_batch(kTwo, Rows::kNone), .hidden_states = hidden}).status().message(),
      HasSubstr("space for 7 values of hidden states, 30 tokens"));
}

// The checkpoint's embedding of a token.
std::vector<float> embedding_of(std::int32_t id, std::int64_t width) {
  const Checkpoint checkpoint = Checkpoint::open(TESSERA_SOURCE_DIR "/tests/data/goldens/llama").value();
  const StoredTensor* table = checkpoint.find("model.embed_tokens.weight");
  std::vector<float> made(static_cast<std::size_t>(width));
  const Status status = copy_tensor(*table, {.dim = 0, .begin = id, .size = 1}, StoredDtype::kF32,
                                    std::as_writable_bytes(std::span(made)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return made;
}

// The same forward with some tokens' embeddings in place of their ids.
ForwardBatch with_embeddings(ForwardBatch batch, const std::vector<std::size_t>& tokens, std::int64_t width) {
  for (const std::size_t t : tokens) {
    const std::vector<float> values = embedding_of(batch.input_ids[t].value(), width);
    batch.input_embeds.insert(batch.input_embeds.end(), values.begin(), values.end());
    batch.input_ids[t] = TokenId(-1);
  }
  return batch;
}

TEST(InputEmbeddings, OfATokenGiveTheSameAsItsId) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::int64_t width = bench.runner->hidden_size();
  const auto expect_equal = [&](const ForwardBatch& batch, const std::vector<std::size_t>& tokens, RunnerKind runner) {
    std::vector<float> by_id, by_embedding, eager, again;
    ASSERT_TRUE(bench.forward(batch, by_id).ok());
    const ForwardBatch given = with_embeddings(batch, tokens, width);
    const Result<ForwardOutputs> outputs = bench.forward(given, by_embedding);
    ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
    EXPECT_EQ(outputs->decision.runner, runner) << reason_text(outputs->decision.reason);
    EXPECT_EQ(by_embedding, by_id);
    ASSERT_TRUE(bench.forward(given, eager, true).ok());
    EXPECT_LE(greatest_difference(eager, by_id), kTolerance);
    ASSERT_TRUE(bench.forward(batch, again).ok());
    EXPECT_EQ(again, by_id) << "embeddings left over from the last forward";
  };
  expect_equal(make_batch(kTwo, Rows::kAll), {0, 4, 5, 6, 13, 29}, RunnerKind::kPrefill);
  expect_equal(make_batch({{ids(14, 5), 13}, {ids(18, 2), 17}, {ids(1, 3)}}, Rows::kAll), {1}, RunnerKind::kDecode);
}

TEST(InputEmbeddings, ReachTheirOwnTokens) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::int64_t width = bench.runner->hidden_size();
  ForwardBatch batch = with_embeddings(make_batch(kTwo, Rows::kAll), {3, 20}, width);
  std::vector<float> before, after;
  ASSERT_TRUE(bench.forward(batch, before).ok());
  for (std::size_t i = static_cast<std::size_t>(width); i < batch.input_embeds.size(); ++i) batch.input_embeds[i] *= -2;
  ASSERT_TRUE(bench.forward(batch, after).ok());
  const std::int64_t vocab = bench.runner->vocab_size();
  for (std::size_t t = 0; t < 30; ++t) {
    const double difference = greatest_difference(row(before, t, vocab), row(after, t, vocab));
    EXPECT_EQ(difference > 1e-3, t >= 20) << t << ": it and what follows it in its request, by " << difference;
  }
}

TEST(InputEmbeddings, AnotherSizeThanTheModelsIsRefused) {
  RunnerBench bench = make_captured("llama", small_options());
  ForwardBatch batch = make_batch(kTwo, Rows::kNone);
  batch.input_ids[2] = TokenId(-1);
  batch.input_embeds.resize(static_cast<std::size_t>(bench.runner->hidden_size()) + 1);
  EXPECT_THAT(bench.runner->forward({.batch = batch}).status().message(),
              HasSubstr("values of embeddings for 1 tokens"));
}

}  // namespace
}  // namespace tessera
