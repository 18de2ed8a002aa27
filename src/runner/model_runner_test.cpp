// Catches: results that differ between graphs and eager runs, or between whole prompts, prompts in chunks, and batches;
// rows that go to the wrong request; wrong counters; and invalid input that is accepted.
#include "tessera/runner/model_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/base/log.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::greatest_difference;
using ::testing::HasSubstr;
using testing::ids;
using ::testing::IsEmpty;
using testing::make_batch;
using testing::make_bench;
using testing::make_captured;
using ::testing::Pair;
using testing::Rows;
using testing::RunnerBench;
using testing::small_options;
using testing::TestRequest;

// Forwards of different sizes may add float32 values in a different order, so their results differ by rounding.
constexpr double kRunTolerance = 1e-4;

// Three prompts of 9, 17 and 14 tokens. Together they have 40 tokens, which is a captured size.
const std::vector<TestRequest> kThree = {{ids(9, 1)}, {ids(17, 2)}, {ids(14, 3)}};

class ForwardWays : public ::testing::TestWithParam<const char*> {};

TEST_P(ForwardWays, AtOneSizeAllGiveTheSameBits) {
  RunnerBench graphs = make_captured(GetParam(), small_options());
  Decision decision;
  const std::vector<float> want = graphs.logits(kThree, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kPrefill);
  EXPECT_EQ(decision.reason, Reason::kExactSize);
  EXPECT_LT(greatest_difference(want, want), 1) << "all are numbers";

  EXPECT_EQ(graphs.logits(kThree, Rows::kAll, true, &decision), want) << "eager on the same runner";
  EXPECT_EQ(decision.reason, Reason::kEagerRequested);
  EXPECT_EQ(make_bench(GetParam(), small_options()).logits(kThree, Rows::kAll, false, &decision), want) << "uncaptured";
  EXPECT_EQ(decision.reason, Reason::kGraphsDisabled);
  RunnerOptions isolated = small_options();
  isolated.memory_plan = MemoryPlanKind::kIsolated;
  EXPECT_EQ(make_captured(GetParam(), isolated).logits(kThree), want) << "isolated memory";
  RunnerOptions whole = small_options();
  whole.split_ops.clear();
  whole.graphs.prefill_whole = true;
  EXPECT_EQ(make_captured(GetParam(), whole).logits(kThree), want) << "one graph";
  RunnerOptions cut = small_options();
  cut.split_ops = {"attention", "linear", "qkv_rope_store", "empty_like", "reshape"};
  EXPECT_EQ(make_captured(GetParam(), cut).logits(kThree), want) << "many cuts";
}

TEST_P(ForwardWays, PaddingChunksAndBatchesStayWithinTheTolerance) {
  RunnerBench bench = make_captured(GetParam(), small_options());
  const std::vector<TestRequest> one = {{ids(13, 5)}};
  Decision decision;
  const std::vector<float> eager = bench.logits(one, Rows::kAll, true);
  EXPECT_LE(greatest_difference(bench.logits(one, Rows::kAll, false, &decision), eager), kRunTolerance) << "padded";
  EXPECT_EQ(decision.padding, 3);

  const auto row = [&](const std::vector<float>& all, std::size_t r) {
    const auto vocab = static_cast<std::ptrdiff_t>(bench.runner->vocab_size());
    return std::vector<float>(all.begin() + static_cast<std::ptrdiff_t>(r) * vocab,
                              all.begin() + static_cast<std::ptrdiff_t>(r + 1) * vocab);
  };
  bench.logits({{ids(7, 5)}}, Rows::kNone);
  EXPECT_LE(greatest_difference(bench.logits({{ids(13, 5), 7}}, Rows::kLast), row(eager, 12)), kRunTolerance)
      << "chunks";
  // The logits after the 13th token are computed two more times: in a forward with decodes of other requests, and in a
  // forward with another request's prompt.
  bench.logits({{ids(8, 6)}, {ids(12, 5)}, {ids(5, 7)}}, Rows::kNone);
  const std::vector<float> decoded =
      bench.logits({{ids(9, 6), 8}, {ids(13, 5), 12}, {ids(6, 7), 5}}, Rows::kAll, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kDecode);
  EXPECT_LE(greatest_difference(row(decoded, 1), row(eager, 12)), kRunTolerance) << "decode graph";
  const std::vector<float> mixed = bench.logits({{ids(11, 8)}, {ids(13, 5), 12}}, Rows::kLast, false, &decision);
  EXPECT_EQ(decision.runner, RunnerKind::kPrefill);
  EXPECT_LE(greatest_difference(row(mixed, 1), row(eager, 12)), kRunTolerance) << "mixed batch";
}

INSTANTIATE_TEST_SUITE_P(ModelRunner, ForwardWays, ::testing::Values("llama", "qwen3", "mistral-swa"),
                         [](const auto& name) {
                           std::string text = name.param;
                           std::replace(text.begin(), text.end(), '-', '_');
                           return text;
                         });

TEST(ModelRunner, MoreRowsThanTheHeadTakesKeepTheirOrder) {
  RunnerOptions options = small_options();
  options.max_tokens = 600;
  options.context_length = 600;
  options.num_pages = {80};
  options.prefill_sizes = {600};
  RunnerBench bench = make_captured("llama", options);
  // One request of 600 wanted rows needs more than two runs of the head.
  std::vector<TestRequest> one = {{ids(600, 4)}};
  ForwardBatch batch = make_batch(one, Rows::kAll);
  std::vector<float> all;
  ASSERT_TRUE(bench.forward(batch, all).ok());
  const auto vocab = static_cast<std::size_t>(bench.runner->vocab_size());
  for (const std::int32_t first : {0, 250, 509, 596}) {
    batch.wanted_rows = {first, first + 3, first + 1};
    std::vector<float> some;
    ASSERT_TRUE(bench.forward(batch, some).ok());
    for (std::size_t i = 0; i < 3; ++i) {
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch.wanted_rows[i]) * vocab);
      const auto got = some.begin() + static_cast<std::ptrdiff_t>(i * vocab);
      EXPECT_LE(greatest_difference({got, got + static_cast<std::ptrdiff_t>(vocab)},
                                    {at, at + static_cast<std::ptrdiff_t>(vocab)}),
                kRunTolerance)
          << "row " << batch.wanted_rows[i];
    }
  }
}

TEST(ModelRunner, TheNextStepFindsGreedySamples) {
  RunnerBench bench = make_captured("llama", small_options());
  const ForwardBatch prompts = make_batch(kThree, Rows::kLast);
  const std::vector<SampleRow> greedy(3);
  std::vector<float> logits(3 * static_cast<std::size_t>(bench.runner->vocab_size()));
  const Result<ForwardOutputs> step = bench.runner->forward({.batch = prompts, .sampling = greedy, .logits = logits});
  ASSERT_TRUE(step.ok()) << step.status().to_string();
  ASSERT_EQ(step->step.sampled.size(), 3u);
  std::vector<TestRequest> next = kThree;
  for (std::size_t r = 0; r < 3; ++r) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(r) * bench.runner->vocab_size();
    EXPECT_EQ(step->step.sampled[r].value(), std::max_element(row, row + bench.runner->vocab_size()) - row);
    next[r].computed = static_cast<std::int64_t>(next[r].ids.size());
    next[r].ids.push_back(step->step.sampled[r].value());
  }
  // Runs the same step with ids from the host, and with the ids that the previous step left on the device.
  const std::vector<float> given = bench.logits(next);
  ASSERT_TRUE(bench.runner->forward({.batch = prompts, .sampling = greedy}).ok());
  EXPECT_EQ(bench.logits_from_rows(next), given);
}

TEST(ModelRunner, SampledIdsOfADecodeGraphAreKeptToo) {
  RunnerBench bench = make_captured("llama", small_options());
  bench.logits({{ids(5, 1)}, {ids(6, 2)}, {ids(7, 3)}}, Rows::kNone);
  const ForwardBatch batch = make_batch({{ids(6, 1), 5}, {ids(7, 2), 6}, {ids(8, 3), 7}}, Rows::kAll);
  const std::vector<SampleRow> sampling = {
      {.temperature = 1, .seed = 5, .position = 6}, {}, {.temperature = 1, .seed = 6}};
  const auto sampled = [&](RunnerKind expected, bool force_eager) {
    const Result<ForwardOutputs> outputs =
        bench.runner->forward({.batch = batch, .sampling = sampling, .logits = {}, .force_eager = force_eager});
    EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
    EXPECT_EQ(outputs->decision.runner, expected);
    EXPECT_EQ(outputs->decision.padding, force_eager ? 0 : 1);
    return std::vector<TokenId>(outputs->step.sampled.begin(), outputs->step.sampled.end());
  };
  const std::vector<TokenId> first = sampled(RunnerKind::kDecode, false);
  EXPECT_EQ(first, sampled(RunnerKind::kDecode, false)) << "drawn from seed and position alone";
  EXPECT_EQ(first, sampled(RunnerKind::kEager, true));
}

TEST(ModelRunner, SubmitsASecondForwardBeforeCollectingTheFirst) {
  RunnerBench bench = make_captured("llama", small_options());
  const std::vector<SampleRow> greedy(1);
  const ForwardBatch prompt = make_batch({{ids(5)}}, Rows::kLast);
  const ForwardOutputs alone = bench.runner->forward({.batch = prompt, .sampling = greedy}).value();
  std::vector<std::int32_t> longer = ids(5);
  longer.push_back(alone.step.sampled[0].value());
  const ForwardBatch given = make_batch({{longer, 5}}, Rows::kLast);
  const TokenId second = bench.runner->forward({.batch = given, .sampling = greedy}).value().step.sampled[0];

  EXPECT_EQ(bench.runner->collect().status().code(), StatusCode::kInternal) << "nothing is in flight";
  ForwardBatch from_row = given;
  from_row.input_ids[0] = TokenId(0);
  from_row.input_rows[0] = 0;
  ASSERT_TRUE(bench.runner->submit({.batch = prompt, .sampling = greedy}).ok());
  ASSERT_TRUE(bench.runner->submit({.batch = from_row, .sampling = greedy}).ok());
  EXPECT_EQ(bench.runner->submit({.batch = from_row, .sampling = greedy}).status().code(), StatusCode::kInternal);
  EXPECT_EQ(bench.runner->in_flight(), 2);
  EXPECT_THAT(bench.runner->collect().value().sampled, ElementsAre(TokenId(longer.back())));
  EXPECT_THAT(bench.runner->collect().value().sampled, ElementsAre(second));
}

TEST(ModelRunner, CountsForwardsByReasonAndBucket) {
  RunnerBench bench = make_captured("llama", small_options());
  EXPECT_THAT(bench.runner->counters().by_key, IsEmpty()) << "warming up does not count";
  bench.logits(kThree);
  bench.logits({{ids(13)}});
  bench.logits({{ids(13)}}, Rows::kAll, true);
  bench.logits({{ids(41)}});
  bench.logits({{ids(6), 5}, {ids(6), 5}, {ids(6), 5}});
  const ForwardCounters& counters = bench.runner->counters();
  const auto of = [&](Reason reason) { return counters.forwards(reason); };
  EXPECT_EQ(of(Reason::kExactSize), 1);
  EXPECT_EQ(of(Reason::kPaddedToSize), 2);
  EXPECT_EQ(of(Reason::kEagerRequested), 1);
  EXPECT_EQ(of(Reason::kAboveLargestSize), 1);
  EXPECT_EQ(counters.of_size(RunnerKind::kEager, 0).forwards, 2);
  EXPECT_EQ(counters.of_size(RunnerKind::kPrefill, 16).forwards, 1);
  EXPECT_EQ(counters.of_size(RunnerKind::kPrefill, 40).forwards, 1);
  EXPECT_EQ(counters.of_size(RunnerKind::kDecode, 4).forwards, 1);
  EXPECT_EQ(counters.tokens, 40 + 13 + 13 + 41 + 3);
  EXPECT_EQ(counters.padded_tokens, 3 + 1);
}

TEST(ModelRunner, WarnsOfTheFirstFallbackOfEachReason) {
  ASSERT_TRUE(set_log_level("dispatch=warn").ok());  // the program's default
  RunnerBench bench = make_captured("llama", small_options());
  ::testing::internal::CaptureStderr();
  bench.logits({{ids(13)}});
  bench.logits({{ids(13)}}, Rows::kAll, true);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "a replay, and eager as the caller wished";
  ::testing::internal::CaptureStderr();
  bench.logits({{ids(41)}});
  bench.logits({{ids(42)}});
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(set_log_level("dispatch=info").ok());
  const std::size_t first = log.find("41 tokens of 1 requests: fallback to eager: ");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("fallback to eager", first + 44), std::string::npos) << log;
}

TEST(ModelRunner, ManyEagerSizesDoNotEvictCapturedOnes) {
  RunnerOptions options = small_options();
  options.max_tokens = 60;
  options.prefill_sizes = {1, 4};  // the capture of size 1 also runs the kernels for the first time
  options.graphs.decode = false;
  RunnerBench bench = make_captured("llama", options);
  const std::vector<float> before = bench.logits({{ids(1)}});
  for (std::int64_t tokens = 5; tokens <= 60; ++tokens) bench.logits({{ids(tokens)}}, Rows::kNone);
  Decision decision;
  EXPECT_EQ(bench.logits({{ids(1)}}, Rows::kAll, false, &decision), before);
  EXPECT_EQ(decision.reason, Reason::kExactSize);
  EXPECT_EQ(bench.runner->prefill().executable().num_captured(), 2);
}

TEST(ModelRunner, MemoryIsReportedByUse) {
  // The model has 3 layers of hidden size 64. Each layer has 4 query heads and 2 KV heads of size 16, and an MLP of
  // size 160. The input and output embeddings have 512 tokens.
  constexpr std::int64_t kParameters = 3 * (64 * (2 * 64 + 2 * 32 + 3 * 160) + 2 * 64) + 2 * 512 * 64 + 64;
  const RunnerOptions options = small_options();
  RunnerBench bench = make_captured("llama", options);
  const MemoryReport memory = bench.runner->memory();
  // The cache holds keys and values for 3 layers. A layer has 33 pages of 8 tokens, and a token has 2 heads of 16
  // floats.
  EXPECT_EQ(memory[MemoryUse::kKvCache], 3 * 2 * 33 * 8 * 2 * 16 * 4);
  EXPECT_GT(memory[MemoryUse::kWeights], kParameters * 4 - 1);
  EXPECT_GT(memory[MemoryUse::kGraphObjects], 0);
  EXPECT_EQ(make_bench("llama", options).runner->memory()[MemoryUse::kGraphObjects], 0);
}

TEST(ModelRunner, ReportsWhatItCaptured) {
  RunnerBench bench = make_captured("llama", small_options());
  EXPECT_THAT(bench.runner->prefill().report().captured, ElementsAre(4, 16, 40));
  EXPECT_THAT(bench.runner->prefill().report().dropped, IsEmpty());
  EXPECT_THAT(bench.runner->decode().report().captured, ElementsAre(1, 2, 4));
  EXPECT_THAT(bench.runner->dispatch_table().prefill_sizes, ElementsAre(4, 16, 40));
  EXPECT_THAT(bench.runner->dispatch_table().decode_sizes, ElementsAre(1, 2, 4));
  EXPECT_GT(bench.runner->prefill().report().graphs.nodes, 0);
}

TEST(ModelRunner, SwitchesDecideWhichRunnersAreCaptured) {
  const auto decided = [](bool prefill, bool decode, const std::vector<TestRequest>& requests) {
    RunnerOptions options = small_options();
    options.graphs.prefill = prefill;
    options.graphs.decode = decode;
    RunnerBench bench = make_captured("llama", options);
    Decision decision;
    bench.logits(requests, Rows::kAll, false, &decision);
    return decision.reason;
  };
  const std::vector<TestRequest> prompt = {{ids(5)}};
  const std::vector<TestRequest> next = {{ids(5), 4}, {ids(6), 5}};
  EXPECT_EQ(decided(true, true, prompt), Reason::kPaddedToSize);
  EXPECT_EQ(decided(false, true, prompt), Reason::kPrefillGraphsDisabled);
  EXPECT_EQ(decided(false, true, next), Reason::kExactSize);
  EXPECT_EQ(decided(true, false, next), Reason::kPaddedToSize);
  EXPECT_EQ(decided(false, false, prompt), Reason::kGraphsDisabled);
}

TEST(ModelRunner, RefusesInconsistentForwards) {
  RunnerBench bench = make_captured("llama", small_options());
  const auto refused = [&](const ForwardInputs& inputs) { return bench.runner->forward(inputs).status().message(); };
  EXPECT_THAT(refused({.batch = make_batch({{ids(49)}}, Rows::kLast)}),
              AllOf(HasSubstr("49"), HasSubstr("at most 48")));
  EXPECT_THAT(refused({.batch = make_batch({{ids(4)}}, Rows::kLast, 2)}),
              HasSubstr("2 cache groups for a model with 1"));
  ForwardBatch batch = make_batch({{ids(4)}}, Rows::kAll);
  std::vector<SampleRow> sampling(3);
  sampling.resize(5);
  EXPECT_THAT(refused({.batch = batch, .sampling = sampling}), HasSubstr("5 sampling rows for 4 wanted rows"));
  std::vector<float> logits(7);
  EXPECT_THAT(refused({.batch = batch, .sampling = {}, .logits = logits}), HasSubstr("4 rows × 512"));
  const ForwardBatch five = make_batch({{ids(5)}}, Rows::kAll);
  EXPECT_THAT(refused({.batch = five, .sampling = sampling}), HasSubstr("at most 4"));
  batch.wanted_rows = {4};
  EXPECT_THAT(refused({.batch = batch}), HasSubstr("wanted_rows[0] is 4"));
  batch = make_batch({{ids(4)}}, Rows::kLast);
  batch.adapter_slots = {-1, -1, 0, -1};
  EXPECT_THAT(refused({.batch = batch}), HasSubstr("adapter_slots[2] is 0; one of 0 slots, or -1"));
  batch = make_batch({{ids(4)}}, Rows::kLast);
  batch.groups[0].own({{PageId(33)}});
  EXPECT_THAT(refused({.batch = batch}), HasSubstr("page 33"));
  // The batch has five requests, but the buffers have room for four.
  EXPECT_THAT(refused({.batch = make_batch(std::vector<TestRequest>(5, {ids(2)}), Rows::kNone)}), Not(IsEmpty()));
  EXPECT_LT(greatest_difference(bench.logits(kThree), bench.logits(kThree)), 1e-9) << "still usable";
}

TEST(ForwardInputs, ARequestWithTwoAdaptersIsRefused) {
  ForwardBatch batch = make_batch({{ids(2)}, {ids(2)}}, Rows::kLast);
  const ForwardLimits limits{
      .max_tokens = 8, .max_requests = 4, .cache_groups = 1, .vocab_size = 512, .adapter_slots = 2};
  batch.adapter_slots = {1, 1, 0, 0};
  EXPECT_TRUE(check({.batch = batch}, limits).ok());
  batch.adapter_slots = {1, 1, 0, -1};
  EXPECT_THAT(check({.batch = batch}, limits).message(),
              HasSubstr("adapter_slots[2] is 0 and adapter_slots[3] is -1; accepted is one slot for all tokens"));
}

TEST(ModelRunner, AForwardMayWantNoRows) {
  RunnerBench bench = make_captured("llama", small_options());
  const Result<ForwardOutputs> outputs = bench.runner->forward({.batch = make_batch({{ids(4)}}, Rows::kNone)});
  ASSERT_TRUE(outputs.ok()) << outputs.status().to_string();
  EXPECT_THAT(outputs->step.sampled, IsEmpty());
  EXPECT_EQ(outputs->decision.reason, Reason::kExactSize);
}

}  // namespace
}  // namespace tessera
