// Tests a deterministic runner. Catches: logits whose bits depend on the other requests of the forward, on the captured
// size, on the chunks of the prompt, or on whether graphs are used; and a decoded token whose logits differ from the
// logits of the same token in a prefill. The last case would occur when a preempted request is computed again as a
// prefill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tessera/device/testing/environment.h"
#include "tessera/ops/device_registry.h"
#include "tessera/runner/runner_test_util.h"

namespace tessera {
namespace {

using testing::ids;
using testing::make_batch;
using testing::Rows;
using testing::TestRequest;

// The requests of one forward. The first one is the request under test.
using Step = std::vector<TestRequest>;

constexpr std::int64_t kLength = 62;

TestRequest part(std::int64_t begin, std::int64_t end, std::int32_t seed = 1) {
  std::vector<std::int32_t> all = ids(kLength, seed);
  all.resize(static_cast<std::size_t>(end));
  return {.ids = all, .computed = begin};
}

struct Ways {
  std::unique_ptr<Device> device;
  std::unique_ptr<ModelRunner> runner;
  std::set<std::pair<RunnerKind, std::int64_t>> sizes = {};  // sizes that forwards ran at

  Ways() = default;
  Ways(Ways&&) = default;
  ~Ways() { runner.reset(); }  // ~Ways() destroys the runner before its device

  // Returns the logits of every position of the first request, in order.
  std::vector<float> logits(const std::vector<Step>& steps, bool force_eager) {
    std::vector<float> all;
    for (const Step& step : steps) {
      const ForwardBatch batch = make_batch(step, Rows::kAll);
      std::vector<float> made(batch.wanted_rows.size() * static_cast<std::size_t>(runner->vocab_size()), NAN);
      const Result<ForwardOutputs> out =
          runner->forward({.batch = batch, .sampling = {}, .logits = made, .force_eager = force_eager});
      EXPECT_TRUE(out.ok()) << out.status().to_string();
      if (!out.ok()) return {};
      sizes.insert({out->decision.runner, out->decision.size});
      all.insert(all.end(), made.begin(), made.begin() + batch.query_lens[0] * runner->vocab_size());
    }
    return all;
  }
};

Result<Ways> make_ways(const std::string& golden, ir::DType dtype, std::vector<std::int64_t> prefill_sizes) {
  RunnerOptions options = testing::small_options();
  options.deterministic = true;
  options.prefill_sizes = std::move(prefill_sizes);
  options.max_tokens = 96;
  const std::string folder = testing::data_path("goldens/" + golden);
  const ModelConfig config = TRY(ModelConfig::read(folder, built_in_families()));
  ModelGraphs graphs =
      TRY(build_model(config, {.dtype = dtype, .page_size = options.page_size, .max_requests = options.max_requests},
                      built_in_ops(), built_in_families()));
  Ways ways;
  ways.device = TRY(built_in_devices().open(testing::test_device_name()));
  Checkpoint checkpoint = TRY(Checkpoint::open(folder));
  Weights weights = TRY(Weights::load(graphs.weights, checkpoint_source(std::move(checkpoint)), *ways.device, false));
  ways.runner = TRY(ModelRunner::create(std::move(graphs), std::move(weights), *ways.device, std::move(options)));
  TRY(ways.runner->capture());
  return ways;
}

std::vector<Step> decode_from(std::int64_t first, const std::vector<std::int32_t>& other_seeds) {
  std::vector<Step> steps(static_cast<std::size_t>(kLength - first) + 1);
  steps[0] = {part(0, first)};
  for (const std::int32_t seed : other_seeds) steps[0].push_back(part(0, 5, seed));
  for (std::int64_t i = first; i < kLength; ++i) {
    Step& step = steps[static_cast<std::size_t>(i - first) + 1];
    step.push_back(part(i, i + 1));
    for (const std::int32_t seed : other_seeds) step.push_back(part(5 + i - first, 6 + i - first, seed));
  }
  return steps;
}

struct Case {
  const char* golden;
  ir::DType dtype;
};

class DeterministicRunner : public ::testing::TestWithParam<Case> {};

TEST_P(DeterministicRunner, LogitsDependOnTheRequestAlone) {
  Result<Ways> small = make_ways(GetParam().golden, GetParam().dtype, {4, 16, 40, 64});
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  Result<Ways> large = make_ways(GetParam().golden, GetParam().dtype, {96});
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  const std::vector<float> alone = small->logits({{part(0, kLength)}}, /*force_eager=*/true);

  const std::vector<std::pair<const char*, std::vector<Step>>> ways = {
      {"alone", {{part(0, kLength)}}},
      {"beside others", {{part(0, kLength), part(0, 9, 2), part(0, 20, 3)}}},
      {"in chunks", {{part(0, 7)}, {part(7, 10)}, {part(10, 24)}, {part(24, kLength)}}},
      {"in chunks beside others",
       {{part(0, 30), part(0, 50, 2)}, {part(30, 31), part(50, 51, 2), part(0, 17, 3)}, {part(31, kLength)}}},
      {"decoded", decode_from(50, {})},
      {"decoded beside others", decode_from(48, {2, 3})},
  };
  for (const auto& [name, steps] : ways)
    for (const bool force_eager : {false, true}) {
      const std::string how = std::string(name) + (force_eager ? ", eagerly" : ", through graphs");
      EXPECT_TRUE(small->logits(steps, force_eager) == alone) << how;
      EXPECT_TRUE(large->logits(steps, force_eager) == alone) << how << " of another size";
    }
  EXPECT_THAT(small->sizes, ::testing::IsSupersetOf({std::pair{RunnerKind::kPrefill, std::int64_t{64}},
                                                     {RunnerKind::kPrefill, 4},
                                                     {RunnerKind::kDecode, 1},
                                                     {RunnerKind::kDecode, 4}}));
  EXPECT_EQ(large->sizes.count({RunnerKind::kPrefill, 96}), 1);
}

INSTANTIATE_TEST_SUITE_P(Models, DeterministicRunner,
                         ::testing::Values(Case{"llama-d128", ir::DType::kBFloat16}, Case{"qwen3", ir::DType::kFloat32},
                                           Case{"llama-d64", ir::DType::kFloat16},
                                           Case{"mistral-swa", ir::DType::kBFloat16},
                                           Case{"llama-bias", ir::DType::kFloat32}),
                         [](const auto& test) {
                           std::string name = test.param.golden;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + "_" + std::string(ir::dtype_name(test.param.dtype));
                         });

}  // namespace
}  // namespace tessera
