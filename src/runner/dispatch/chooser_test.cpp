// A Chooser samples tokens for batches whose rows have logit edits or want log-probabilities. Catches: edits that
// change another row, or that change the logits that the caller gets; log-probabilities that are computed from another
// row or from edited logits; rows that are lost or repeated when the Chooser needs several runs for a forward; results
// that the next forward overwrites; extra work for batches without edits; and batches with edits or log-probabilities
// that run without graphs.
#include "tessera/runner/dispatch/chooser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tessera/model/sampler.h"
#include "tessera/ops/sampling/top_logprobs.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ids;
using ::testing::IsEmpty;
using testing::make_batch;
using testing::make_captured;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

// Returns whether the tests' mask allows a token in a row. various_edits() gives this mask to every third row, and
// penalties and offsets to most rows.
bool may_be_chosen(std::int64_t token, std::size_t row) {
  return (token + static_cast<std::int64_t>(row) / 3) % 3 == 0;
}

LogitEdits various_edits(std::size_t rows, std::int64_t vocab) {
  LogitEdits edits;
  edits.starts = {0};
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::int64_t i = static_cast<std::int64_t>(r); r % 4 != 3 && i < vocab; i += 5) {
      edits.ids.emplace_back(static_cast<std::int32_t>(i));
      edits.penalties.push_back(1.0F + 0.25F * static_cast<float>(i % 4));
      edits.offsets.push_back(i % 7 == 0 ? -INFINITY : 0.5F * static_cast<float>(i % 11) - 2.0F);
    }
    edits.starts.push_back(static_cast<std::int32_t>(edits.ids.size()));
    if (r % 3 != 1) continue;
    edits.masked_rows.push_back(static_cast<std::int32_t>(r));
    for (std::int64_t w = 0; w < (vocab + 31) / 32; ++w) {
      std::uint32_t word = 0;
      for (std::int64_t i = 0; i < 32; ++i) word |= may_be_chosen(32 * w + i, r) ? 1u << i : 0u;
      edits.masks.push_back(word);
    }
  }
  return edits;
}

// Returns the token with the largest logit after the edits of row r.
std::int32_t edited_argmax(std::span<const float> logits, const LogitEdits* edits, std::size_t r) {
  std::vector<float> x(logits.begin(), logits.end());
  if (edits != nullptr) {
    for (std::int32_t e = edits->starts[r]; e < edits->starts[r + 1]; ++e) {
      const auto at = static_cast<std::size_t>(e);
      float& logit = x[edits->ids[at].index()];
      logit = (logit > 0 ? logit / edits->penalties[at] : logit * edits->penalties[at]) + edits->offsets[at];
    }
    const auto mask = std::find(edits->masked_rows.begin(), edits->masked_rows.end(), static_cast<std::int32_t>(r));
    for (std::size_t i = 0; mask != edits->masked_rows.end() && i < x.size(); ++i)
      if (!may_be_chosen(static_cast<std::int64_t>(i), r)) x[i] = -INFINITY;
  }
  return static_cast<std::int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

// Runs a forward that samples its first rows greedily and wants log-probabilities. Checks the tokens and the
// log-probabilities against the logits of the same forward. Returns the sampled tokens.
std::vector<TokenId> check_forward(RunnerBench& bench, const ForwardBatch& batch, std::size_t sampled,
                                   const LogitEdits* edits, int top, RunnerKind runner, bool force_eager = false) {
  const auto vocab = static_cast<std::size_t>(bench.runner->vocab_size());
  const std::size_t rows = batch.wanted_rows.size();
  const std::vector<SampleRow> sampling(sampled);
  std::vector<TokenId> targets;
  for (std::size_t r = 0; r < rows; ++r) targets.emplace_back(static_cast<std::int32_t>(r * 37 % vocab));
  std::vector<float> logits(rows * vocab);
  const Result<ForwardOutputs> outputs = bench.runner->forward({.batch = batch,
                                                                .sampling = sampling,
                                                                .edits = edits,
                                                                .logprob_targets = targets,
                                                                .top_logprobs = top,
                                                                .logits = logits,
                                                                .force_eager = force_eager});
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  if (!outputs.ok()) return {};
  EXPECT_EQ(outputs->decision.runner, runner) << reason_text(outputs->decision.reason);
  const StepOutputs& step = outputs->step;
  EXPECT_EQ(step.sampled.size(), sampled);
  EXPECT_EQ(step.logprobs.size(), rows);
  EXPECT_EQ(step.top_ids.size(), rows * static_cast<std::size_t>(top));
  EXPECT_EQ(step.top_logprobs.size(), rows * static_cast<std::size_t>(top));
  for (std::size_t r = 0; r < rows && !::testing::Test::HasFailure(); ++r) {
    const auto row = std::span(logits).subspan(r * vocab, vocab);
    if (r < sampled) {
      EXPECT_EQ(step.sampled[r].value(), edited_argmax(row, edits, r)) << "row " << r;
    }
    const double greatest = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double sum = 0;
    for (const float x : row) sum += std::exp(static_cast<double>(x) - greatest);
    const auto logprob = [&](TokenId id) { return static_cast<double>(row[id.index()]) - greatest - std::log(sum); };
    EXPECT_NEAR(static_cast<double>(step.logprobs[r]), logprob(r < sampled ? step.sampled[r] : targets[r]), 1e-5)
        << "row " << r;
    std::vector<std::int32_t> order(vocab);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < static_cast<std::size_t>(top); ++i) {
      const std::size_t at = r * static_cast<std::size_t>(top) + i;
      EXPECT_EQ(step.top_ids[at].value(), order[i]) << "row " << r << ", number " << i;
      EXPECT_NEAR(static_cast<double>(step.top_logprobs[at]), logprob(step.top_ids[at]), 1e-5);
    }
  }
  return {step.sampled.begin(), step.sampled.end()};
}

// Three prompts of 9, 17 and 14 tokens. Together they have 40 tokens, which is a captured size.
const std::vector<TestRequest> kThree = {{ids(9, 1)}, {ids(17, 2)}, {ids(14, 3)}};
const std::vector<TestRequest> kThreeNext = {{ids(10, 1), 9}, {ids(18, 2), 17}, {ids(15, 3), 14}};

TEST(Chooser, EditsAndLogprobsThroughGraphsAndEagerly) {
  for (const bool isolated : {false, true}) {
    RunnerOptions options = small_options();
    if (isolated) options.memory_plan = MemoryPlanKind::kIsolated;
    RunnerBench bench = make_captured("llama", options);
    const LogitEdits edits = various_edits(3, bench.runner->vocab_size());
    for (const LogitEdits* given : {static_cast<const LogitEdits*>(nullptr), &edits}) {
      for (const int top : {0, 1, 5, kMaxTopLogprobs}) {
        const ForwardBatch prompts = make_batch(kThree, Rows::kLast);
        const std::vector<TokenId> first = check_forward(bench, prompts, 3, given, top, RunnerKind::kPrefill);
        EXPECT_EQ(first, check_forward(bench, prompts, 3, given, top, RunnerKind::kEager, true));
        const ForwardBatch next = make_batch(kThreeNext, Rows::kAll);  // 3 rows, padded to size 4
        const std::vector<TokenId> second = check_forward(bench, next, 3, given, top, RunnerKind::kDecode);
        EXPECT_EQ(second, check_forward(bench, next, 3, given, top, RunnerKind::kEager, true));
      }
    }
    // In the first forward two rows are sampled, and in the second forward none. All other rows only get
    // log-probabilities.
    const LogitEdits two = various_edits(2, bench.runner->vocab_size());
    check_forward(bench, make_batch(kThree, Rows::kAll), 2, &two, 3, RunnerKind::kPrefill);
    check_forward(bench, make_batch(kThree, Rows::kAll), 0, nullptr, 3, RunnerKind::kPrefill);
  }
}

TEST(Chooser, EditsAloneAndDrawsFromEditedRows) {
  RunnerBench bench = make_captured("llama", small_options());
  const ForwardBatch prompts = make_batch(kThree, Rows::kLast);
  const LogitEdits edits = various_edits(3, bench.runner->vocab_size());
  std::vector<SampleRow> sampling(3, {.temperature = 5, .seed = 3});
  std::size_t distinct = 0;
  TokenId last(-1);
  for (std::int32_t position = 0; position < 40; ++position) {
    for (SampleRow& row : sampling) row.position = position;
    const auto run = [&](bool force_eager) {
      const Result<ForwardOutputs> outputs =
          bench.runner->forward({.batch = prompts, .sampling = sampling, .edits = &edits, .force_eager = force_eager});
      EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
      EXPECT_THAT(outputs->step.logprobs, IsEmpty());
      EXPECT_THAT(outputs->step.top_ids, IsEmpty());
      return std::vector<TokenId>(outputs->step.sampled.begin(), outputs->step.sampled.end());
    };
    const std::vector<TokenId> drawn = run(false);
    EXPECT_EQ(drawn, run(true));
    EXPECT_TRUE(may_be_chosen(drawn[1].value(), 1)) << drawn[1].value();
    EXPECT_NE(drawn[0].value() % 35, 0) << "an offset of -infinity";
    distinct += drawn[1] != last ? 1 : 0;
    last = drawn[1];
  }
  EXPECT_GT(distinct, 10u) << "it is drawn, not chosen";
}

TEST(Chooser, TheNextStepFindsTheEditedToken) {
  RunnerBench bench = make_captured("llama", small_options());
  const ForwardBatch prompts = make_batch(kThree, Rows::kLast);
  const LogitEdits edits = various_edits(3, bench.runner->vocab_size());
  const std::vector<TokenId> sampled = check_forward(bench, prompts, 3, &edits, 0, RunnerKind::kPrefill);
  ASSERT_EQ(sampled.size(), 3u);
  std::vector<TestRequest> next = kThreeNext;
  for (std::size_t r = 0; r < 3; ++r) next[r].ids.back() = sampled[r].value();
  const std::vector<float> given = bench.logits(next);
  check_forward(bench, prompts, 3, &edits, 0, RunnerKind::kPrefill);
  EXPECT_EQ(bench.logits_from_rows(next), given);
}

// The forward has more wanted rows than the head takes in one run, and more sampled rows than `choose` takes.
TEST(Chooser, ForwardsOfManyRowsKeepTheirOrder) {
  RunnerOptions options = small_options();
  options.max_tokens = 600;
  options.max_requests = 150;
  options.context_length = 600;
  options.prefill_sizes = {600};
  options.decode_sizes = {150};
  options.num_pages = {150 * testing::kPagesPerRequest + 1};
  RunnerBench bench = make_captured("llama", options);
  const std::int64_t vocab = bench.runner->vocab_size();
  const LogitEdits edits = various_edits(150, vocab);
  check_forward(bench, make_batch({{ids(600, 4)}}, Rows::kAll), 0, nullptr, 2, RunnerKind::kPrefill);
  check_forward(bench, make_batch({{ids(600, 4)}}, Rows::kAll), 150, &edits, 2, RunnerKind::kPrefill);
  std::vector<TestRequest> many;
  for (std::int32_t b = 0; b < 130; ++b) many.push_back({ids(1, b)});
  const LogitEdits fewer = various_edits(130, vocab);
  check_forward(bench, make_batch(many, Rows::kAll), 130, &fewer, 2, RunnerKind::kDecode);
}

TEST(Chooser, EditsThatChangeNothingChangeNoToken) {
  RunnerOptions options = small_options();
  options.max_tokens = 150;
  options.max_requests = 150;
  options.prefill_sizes = {150};
  options.decode_sizes = {150};
  options.num_pages = {150 * testing::kPagesPerRequest + 1};
  RunnerBench bench = make_captured("llama", options);
  std::vector<TestRequest> many;
  std::vector<SampleRow> sampling;
  LogitEdits edits;
  edits.starts = {0};
  for (std::int32_t b = 0; b < 150; ++b) {
    many.push_back({ids(1, b)});
    sampling.push_back({.temperature = 2, .seed = b, .choice = b % 3, .position = 7 * b});
    edits.ids.emplace_back(b);
    edits.penalties.push_back(1);
    edits.offsets.push_back(0);
    edits.starts.push_back(b + 1);
  }
  const ForwardBatch batch = make_batch(many, Rows::kAll);
  const auto sampled = [&](const LogitEdits* given, bool force_eager) {
    const StepOutputs step =
        bench.runner->forward({.batch = batch, .sampling = sampling, .edits = given, .force_eager = force_eager})
            .value()
            .step;
    return std::vector<TokenId>(step.sampled.begin(), step.sampled.end());
  };
  EXPECT_EQ(sampled(&edits, false), sampled(nullptr, false));
  EXPECT_EQ(sampled(&edits, true), sampled(nullptr, true));
}

TEST(Chooser, ResultsOfTwoForwardsInFlightStayApart) {
  RunnerBench bench = make_captured("llama", small_options());
  const ForwardBatch first = make_batch({{ids(9, 1)}}, Rows::kLast);
  const ForwardBatch second = make_batch({{ids(17, 2)}}, Rows::kLast);
  const std::vector<SampleRow> sampling(1);
  const std::vector<TokenId> targets(1);
  const auto inputs = [&](const ForwardBatch& batch) {
    return ForwardInputs{.batch = batch, .sampling = sampling, .logprob_targets = targets, .top_logprobs = 4};
  };
  const auto copy = [](const StepOutputs& step) {
    return std::pair(std::vector<float>(step.logprobs.begin(), step.logprobs.end()),
                     std::vector<TokenId>(step.top_ids.begin(), step.top_ids.end()));
  };
  const auto first_alone = copy(bench.runner->forward(inputs(first)).value().step);
  const auto second_alone = copy(bench.runner->forward(inputs(second)).value().step);
  EXPECT_NE(first_alone, second_alone);
  ASSERT_TRUE(bench.runner->submit(inputs(first)).ok());
  ASSERT_TRUE(bench.runner->submit(inputs(second)).ok());
  const StepOutputs one = bench.runner->collect().value();
  const StepOutputs two = bench.runner->collect().value();
  EXPECT_EQ(copy(one), first_alone);
  EXPECT_EQ(copy(two), second_alone);
}

TEST(Chooser, PlainBatchesLaunchNothingForEdits) {
  RunnerBench bench = make_captured("llama", small_options());
  bench.logits(kThree, Rows::kNone);
  const ForwardBatch next = make_batch(kThreeNext, Rows::kAll);
  const std::vector<SampleRow> sampling(3);
  const std::vector<TokenId> targets(3);
  const LogitEdits none;
  const auto count = [&](const ForwardInputs& inputs) {
    bench.device->set_plan({});
    const Result<ForwardOutputs> outputs = bench.runner->forward(inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    EXPECT_THAT(outputs->decision.reason, AnyOf(Reason::kExactSize, Reason::kPaddedToSize));
    return bench.device->counts();
  };
  const FaultCounts plain = count({.batch = next, .sampling = sampling, .edits = &none});
  EXPECT_EQ(plain.replays, 1);
  EXPECT_EQ(plain.launches, 1) << "the copy of sampled ids";
  const FaultCounts scored = count({.batch = next, .sampling = sampling, .logprob_targets = targets});
  EXPECT_EQ(scored.replays, 1) << "the same graph";
  EXPECT_GT(scored.launches, plain.launches);
}

TEST(Chooser, RefusesEditsAndTargetsThatContradictTheBatch) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::int64_t vocab = bench.runner->vocab_size();
  const ForwardBatch batch = make_batch(kThree, Rows::kLast);
  const std::vector<SampleRow> sampling(3);
  const auto refused = [&](LogitEdits edits) {
    return bench.runner->forward({.batch = batch, .sampling = sampling, .edits = &edits}).status().message();
  };
  const auto with = [&](auto change) {
    LogitEdits edits = various_edits(3, vocab);
    change(edits);
    return edits;
  };
  EXPECT_EQ(refused(various_edits(3, vocab)), "");
  EXPECT_THAT(refused(various_edits(2, vocab)), HasSubstr("3 starts"));
  EXPECT_THAT(refused(with([](LogitEdits& e) { e.starts[1] = e.starts[2] + 1; })), HasSubstr("4 starts"));
  EXPECT_THAT(refused(with([](LogitEdits& e) { e.starts.clear(); })), HasSubstr("0 starts"));
  EXPECT_THAT(refused(with([](LogitEdits& e) { e.penalties.pop_back(); })), HasSubstr("penalties"));
  EXPECT_THAT(refused(with([](LogitEdits& e) { e.masks.pop_back(); })),
              HasSubstr("15 words of masks for 1 rows of 16"));
  EXPECT_THAT(refused(with([](LogitEdits& e) { e.masked_rows[0] = 3; })), HasSubstr("masked row 3"));
  EXPECT_THAT(refused(with([vocab](LogitEdits& e) {
                e.ids.resize(static_cast<std::size_t>(vocab) + 1);
                e.penalties.resize(e.ids.size());
                e.offsets.resize(e.ids.size());
                e.starts = {0, 0, 0, static_cast<std::int32_t>(vocab) + 1};
              })),
              HasSubstr("row 2 has 513 ids"));
  const std::vector<TokenId> targets(2);
  EXPECT_THAT(bench.runner->forward({.batch = batch, .logprob_targets = targets}).status().message(),
              HasSubstr("2 targets of log-probabilities for 3 wanted rows"));
  EXPECT_THAT(bench.runner->forward({.batch = batch, .top_logprobs = 21}).status().message(), HasSubstr("0 to 20"));
}

// A run of `choose` takes a limited number of edits. Rows whose edits no longer fit go into the next run.
TEST(EditBuffers, RowsGoTogetherWhileTheirEditsFit) {
  const auto device = FakeDevice::create({}, {.threads = 1}).value();
  constexpr std::int64_t kVocab = 200000;
  const EditBuffers buffers = EditBuffers::create(*device, kVocab).value();
  EXPECT_EQ(buffers.bytes(), EditBuffers::bytes_needed(kVocab));
  LogitEdits edits;
  edits.starts = {0, 150000, 300000, 300000, 300010, 500000, 700000};
  EXPECT_EQ(buffers.rows_that_fit(edits, 0, 6), 1);
  EXPECT_EQ(buffers.rows_that_fit(edits, 1, 5), 3);
  EXPECT_EQ(buffers.rows_that_fit(edits, 2, 4), 3);
  EXPECT_EQ(buffers.rows_that_fit(edits, 2, 1), 1);
  EXPECT_EQ(buffers.rows_that_fit(edits, 5, 1), 1) << "one row always fits";
  edits.starts.clear();
  EXPECT_EQ(buffers.rows_that_fit(edits, 0, 6), 6) << "masks alone";
}

}  // namespace
}  // namespace tessera
