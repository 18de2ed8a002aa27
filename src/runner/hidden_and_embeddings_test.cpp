// Catches: a row that gets the hidden states of another row or of padding; hidden states that are read after the head
// overwrote them; embeddings that are given to another token, that are left over from the previous forward, or that are
// rounded to a wrong type; and requests for hidden states or embeddings that make a forward run without graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/paths.h"
#include "tessera/model/weights/tensor_copy.h"
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

// Two prompts of 13 and 17 tokens. Together they have 30 tokens, which are padded to 40.
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
    // Computes the last token of each request again with the decode graph.
    const ForwardBatch last = make_batch({{ids(13, 5), 12}, {ids(17, 2), 16}}, Rows::kAll);
    const std::vector<float> decoded = hidden_states(bench, last, RunnerKind::kDecode);
    EXPECT_LE(greatest_difference(row(decoded, 0, width), row(eager, 12, width)), tolerance);
    EXPECT_LE(greatest_difference(row(decoded, 1, width), row(eager, 29, width)), tolerance);
    EXPECT_GT(greatest_difference(row(eager, 12, width), row(eager, 29, width)), 2 * tolerance) << "rows differ";
  }
}

// If the last layer computes only the wanted rows, the head computes the hidden states. One run of the head takes at
// most 256 rows.
TEST(HiddenStates, AreUnchangedByALastLayerOfWantedRows) {
  for (const MemoryPlanKind plan : {MemoryPlanKind::kPlanned, MemoryPlanKind::kIsolated}) {
    RunnerOptions options = small_options();
    options.max_tokens = 320;
    options.max_requests = 5;
    options.num_pages = {5 * testing::kPagesPerRequest + 1};
    RunnerBench whole = make_captured("llama", options);
    const ForwardBatch prompts =
        make_batch({{ids(60, 5)}, {ids(60, 2)}, {ids(60, 3)}, {ids(60, 4)}, {ids(60, 6)}}, Rows::kLast);
    const std::vector<float> want = hidden_states(whole, prompts, RunnerKind::kEager);
    options.memory_plan = plan;
    RunnerBench bench = make_captured("llama", options, ir::DType::kFloat32, testing::LastLayer::kOfWantedRows);
    ASSERT_TRUE(bench.runner->model().graphs.prefill);
    EXPECT_LE(greatest_difference(hidden_states(bench, prompts, RunnerKind::kEager), want), kTolerance);

    const std::vector<std::int32_t> rows = {0, 11, 12, 280};
    const auto width = static_cast<std::size_t>(bench.runner->hidden_size());
    std::vector<float> some(rows.size() * width, NAN);
    const Result<ForwardOutputs> done =
        bench.runner->forward({.batch = prompts, .hidden_states = some, .hidden_rows = rows});
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < rows.size(); ++i)
      EXPECT_LE(greatest_difference(row(some, i, bench.runner->hidden_size()),
                                    row(want, static_cast<std::size_t>(rows[i]), bench.runner->hidden_size())),
                kTolerance)
          << rows[i];
  }
}

// Requests the hidden states of neighbouring and of separate rows of a prefill.
TEST(HiddenStates, SelectedRowsEqualThoseOfAllRows) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16}) {
    RunnerBench bench = make_captured("llama", small_options(), dtype);
    const auto width = static_cast<std::size_t>(bench.runner->hidden_size());
    const ForwardBatch prompts = make_batch(kTwo, Rows::kLast);
    const std::vector<float> all = hidden_states(bench, prompts, RunnerKind::kPrefill);
    const std::vector<std::int32_t> rows = {0, 11, 12, 13, 29};
    std::vector<float> some(rows.size() * width, NAN);
    const Result<ForwardOutputs> done =
        bench.runner->forward({.batch = prompts, .hidden_states = some, .hidden_rows = rows});
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto width_of_row = static_cast<std::int64_t>(width);
      EXPECT_EQ(row(some, i, width_of_row), row(all, static_cast<std::size_t>(rows[i]), width_of_row)) << rows[i];
    }
  }
}

TEST(HiddenStates, RowsThatDoNotAscendAreRefused) {
  RunnerBench bench = make_captured("llama", small_options());
  std::vector<float> hidden(static_cast<std::size_t>(2 * bench.runner->hidden_size()));
  for (const std::vector<std::int32_t>& rows : {std::vector{3, 3}, {4, 3}, {-1, 3}, {3, 30}}) {
    EXPECT_THAT(
        bench.runner->forward({.batch = make_batch(kTwo, Rows::kNone), .hidden_states = hidden, .hidden_rows = rows})
            .status()
            .message(),
        HasSubstr("of 30 tokens"));
  }
}

TEST(HiddenStates, SpaceForAnotherNumberIsRefused) {
  RunnerBench bench = make_captured("llama", small_options());
  std::vector<float> hidden(7);
  EXPECT_THAT(
      bench.runner->forward({.batch = make_batch(kTwo, Rows::kNone), .hidden_states = hidden}).status().message(),
      HasSubstr("the buffer holds 7 values of hidden states, but 30 tokens"));
}

// Returns the checkpoint's embedding of a token.
std::vector<float> embedding_of(std::int32_t id, std::int64_t width) {
  const Checkpoint checkpoint = Checkpoint::open(testing::data_path("goldens/llama")).value();
  const StoredTensor* table = checkpoint.find("model.embed_tokens.weight");
  std::vector<float> made(static_cast<std::size_t>(width));
  const Status status = copy_tensor(*table, {.dim = 0, .begin = id, .size = 1}, StoredDtype::kF32,
                                    std::as_writable_bytes(std::span(made)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return made;
}

// A forward in which some tokens get embeddings in place of their ids. The ids of these tokens are changed. The change
// must have no effect.
struct Embedded {
  ForwardBatch batch;
  std::vector<float> values;
};

// Gives an embedding to each token of the batch whose index is in `tokens`. The embeddings take consecutive rows,
// beginning with `first_row`.
Embedded with_embeddings(RunnerBench& bench, ForwardBatch batch, const std::vector<std::size_t>& tokens,
                         std::int32_t first_row) {
  Embedded made{.batch = std::move(batch), .values = {}};
  made.batch.embedding_rows.assign(made.batch.input_ids.size(), -1);
  std::int32_t row = first_row;
  for (const std::size_t t : tokens) {
    const std::vector<float> values = embedding_of(made.batch.input_ids[t].value(), bench.runner->hidden_size());
    made.values.insert(made.values.end(), values.begin(), values.end());
    made.batch.input_ids[t] = TokenId(1);
    made.batch.embedding_rows[t] = row++;
  }
  made.batch.embedding_writes = {{.first_row = first_row, .values = made.values}};
  EXPECT_TRUE(bench.runner->reserve_embeddings(row).ok());
  return made;
}

TEST(InputEmbeddings, EqualTheIdsOfTheirTokens) {
  for (const ir::DType dtype : {ir::DType::kFloat32, ir::DType::kBFloat16}) {
    RunnerBench bench = make_captured("llama", small_options(), dtype);
    const double tolerance = dtype == ir::DType::kFloat32 ? kTolerance : 0.06;
    const auto expect_equal = [&](const ForwardBatch& batch, const std::vector<std::size_t>& tokens,
                                  std::int32_t first_row, RunnerKind runner) {
      std::vector<float> by_id, by_embedding, eager, again;
      ASSERT_TRUE(bench.forward(batch, by_id).ok());
      const Embedded given = with_embeddings(bench, batch, tokens, first_row);
      const Result<ForwardOutputs> outputs = bench.forward(given.batch, by_embedding);
      ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
      EXPECT_EQ(outputs->decision.runner, runner) << reason_text(outputs->decision.reason);
      EXPECT_EQ(by_embedding, by_id);
      ASSERT_TRUE(bench.forward(given.batch, eager, true).ok());
      EXPECT_LE(greatest_difference(eager, by_id), tolerance);
      ASSERT_TRUE(bench.forward(batch, again).ok());
      EXPECT_EQ(again, by_id) << "embeddings left over from the last forward";
    };
    expect_equal(make_batch(kTwo, Rows::kAll), {0, 4, 5, 6, 13, 29}, 0, RunnerKind::kPrefill);
    expect_equal(make_batch(kTwo, Rows::kAll), {0, 4, 29}, 700, RunnerKind::kPrefill);
    expect_equal(make_batch({{ids(14, 5), 13}, {ids(18, 2), 17}, {ids(1, 3)}}, Rows::kAll), {1}, 5,
                 RunnerKind::kDecode);
  }
}

TEST(InputEmbeddings, ReachTheirOwnTokens) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::int64_t width = bench.runner->hidden_size();
  Embedded given = with_embeddings(bench, make_batch(kTwo, Rows::kAll), {3, 20}, 0);
  std::vector<float> before, after;
  ASSERT_TRUE(bench.forward(given.batch, before).ok());
  for (std::size_t i = static_cast<std::size_t>(width); i < given.values.size(); ++i) given.values[i] *= -2;
  ASSERT_TRUE(bench.forward(given.batch, after).ok());
  const std::int64_t vocab = bench.runner->vocab_size();
  for (std::size_t t = 0; t < 30; ++t) {
    const double difference = greatest_difference(row(before, t, vocab), row(after, t, vocab));
    EXPECT_EQ(difference > 1e-3, t >= 20) << t << ": it and what follows it in its request, by " << difference;
  }
}

// One forward writes the embedding rows and a later forward reads them, because rows keep their values until they are
// written again.
TEST(InputEmbeddings, StayInTheirRows) {
  RunnerBench bench = make_captured("llama", small_options());
  const Embedded given = with_embeddings(bench, make_batch(kTwo, Rows::kAll), {3, 20}, 8);
  std::vector<float> first, plain, later;
  ASSERT_TRUE(bench.forward(given.batch, first).ok());
  ASSERT_TRUE(bench.forward(make_batch({{ids(22, 7)}}, Rows::kAll), plain).ok());
  ForwardBatch named = given.batch;
  named.embedding_writes.clear();
  ASSERT_TRUE(bench.forward(named, later).ok());
  EXPECT_EQ(later, first);
}

TEST(InputEmbeddings, RowsWithoutMemoryAndPartsOfRowsAreRefused) {
  RunnerBench bench = make_captured("llama", small_options());
  EXPECT_EQ(bench.runner->embedding_rows(), 0);
  const std::int64_t before = bench.runner->memory()[MemoryUse::kStaticInputs];
  const auto refused = [&](const ForwardBatch& batch) {
    return bench.runner->forward({.batch = batch}).status().message();
  };
  ForwardBatch batch = make_batch(kTwo, Rows::kNone);
  batch.embedding_rows.assign(30, -1);
  batch.embedding_rows[2] = 0;
  EXPECT_THAT(refused(batch), HasSubstr("embedding_rows[2] is 0, outside the 0 rows"));
  ASSERT_TRUE(bench.runner->reserve_embeddings(3).ok());
  EXPECT_GE(bench.runner->memory()[MemoryUse::kStaticInputs], before + 3 * bench.runner->hidden_size() * 4);
  const std::vector<float> values(static_cast<std::size_t>(2 * bench.runner->hidden_size()) + 1);
  batch.embedding_writes = {{.first_row = 0, .values = values}};
  EXPECT_THAT(refused(batch), HasSubstr("values of embeddings are no rows of"));
  batch.embedding_writes = {{.first_row = 2, .values = std::span(values).first(values.size() - 1)}};
  EXPECT_THAT(refused(batch), HasSubstr("embeddings for rows 2 to 3 of 3"));
  batch.embedding_rows.pop_back();
  EXPECT_THAT(refused(batch), HasSubstr("embedding_rows has 29 entries"));
  EXPECT_THAT(bench.runner->reserve_embeddings(1 << 20).message(), HasSubstr("the model was built for 2048"));
}

}  // namespace
}  // namespace tessera
