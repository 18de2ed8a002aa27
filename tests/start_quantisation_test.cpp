// Tests an engine that quantises a model when it starts. Catches: weights that differ from those that an offline tool
// would write, also on ranks that hold only parts of quantisation blocks; experts that are quantised wrongly because of
// their layout in the checkpoint; matrices that are quantised but must not be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <tuple>

#include "golden.h"
#include "golden_cases.h"
#include "offline_checkpoint.h"
#include "rank_golden.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/cpu/cpu_device.h"
#include "tessera/ir/text.h"
#include "tessera/model/family.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using testing::Distance;
using testing::Golden;
using testing::read_golden;

ModelConfig config_at_start(const std::string& folder, const std::string& format) {
  ModelConfig config = *ModelConfig::read(folder, built_in_families());
  config.formats = config.formats.quantised_at_start(*start_format_from_name(format));
  return config;
}

struct LoadedWeights {
  std::string body;                                     // the graph's text
  std::map<std::string, std::vector<std::byte>> bytes;  // contents of the weights by name
  std::vector<WeightSpec> specs;
};

Result<LoadedWeights> load(const std::string& folder, const ModelConfig& config, int rank, int ranks) {
  auto checkpoint = std::make_shared<const Checkpoint>(TRY(Checkpoint::open(folder)));
  const StoredTypeOf stored = [checkpoint](std::string_view name) -> std::optional<StoredDtype> {
    const StoredTensor* tensor = checkpoint->find(name);
    return tensor != nullptr ? std::optional(tensor->dtype) : std::nullopt;
  };
  const ModelGraphs graphs = TRY(build_model(config, {.tp_rank = rank, .tp_size = ranks, .stored_type = stored},
                                             built_in_ops(), built_in_families()));
  const std::unique_ptr<CpuDevice> device = TRY(CpuDevice::create({.threads = 1}));
  const Weights weights = TRY(Weights::load(graphs.weights, checkpoint_source(checkpoint), *device, false));
  LoadedWeights loaded{.body = ir::to_text(graphs.body), .bytes = {}, .specs = graphs.weights};
  for (const WeightSpec& spec : graphs.weights) {
    const std::byte* at = weights.addresses().find(spec.name)->second.raw();
    loaded.bytes[spec.name].assign(at, at + TRY(ir::size_bytes(spec.type, {})));
  }
  return loaded;
}

// Returns the linear layers that are quantised, each with the number of columns that share a scale.
std::map<std::string, std::int64_t> rounded_modules(const std::vector<WeightSpec>& specs) {
  std::map<std::string, std::int64_t> modules;
  for (const WeightSpec& spec : specs)
    for (const WeightPart& part : spec.parts)
      if (const auto* rounded = std::get_if<RoundedStorage>(&part.storage))
        modules[part.tensor.substr(0, part.tensor.rfind('.'))] = rounded->rounding.block_cols;
  return modules;
}

std::vector<Completion> run(EngineOptions options, const std::vector<Request>& requests) {
  options.graphs.piecewise_tokens = {4, 16, testing::kRankChunk};
  const std::unique_ptr<Engine> engine = testing::make_engine(options);
  return engine == nullptr ? std::vector<Completion>() : testing::run_all(*engine, requests);
}
std::vector<Completion> scored(const EngineOptions& options, const Golden& golden) {
  return run(options, testing::score_requests(golden));
}

Distance between(const std::vector<Completion>& a, const std::vector<Completion>& b) {
  Distance worst;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (i >= a.size() || i >= b.size()) return {INFINITY, INFINITY};
    const Distance d = testing::distance(a[i].logits, b[i].logits);
    worst = {std::max(worst.absolute, d.absolute), std::max(worst.relative, d.relative)};
  }
  return worst;
}

class QuantisedAtStart : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(QuantisedAtStart, WeightsAndLogitsAreThoseOfAPublishedCheckpoint) {
  const auto& [name, format] = GetParam();
  const Golden golden = read_golden(name);
  const ModelConfig at_start = config_at_start(golden.folder, format);
  const Result<LoadedWeights> whole = load(golden.folder, at_start, 0, 1);
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  const std::map<std::string, std::int64_t> modules = rounded_modules(whole->specs);
  ASSERT_GE(modules.size(), 9u);

  const test::ScratchDir published;
  testing::OfflineCheckpoint(golden.folder, format, modules).write(published.path());
  const Result<ModelConfig> config = ModelConfig::read(published.path(), built_in_families());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  for (const int ranks : {1, 2}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const Result<LoadedWeights> made = load(golden.folder, at_start, rank, ranks);
      const Result<LoadedWeights> stored = load(published.path(), *config, rank, ranks);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      ASSERT_TRUE(stored.ok()) << stored.status().to_string();
      EXPECT_EQ(made->body, stored->body) << "rank " << rank << " of " << ranks;
      for (const auto& [weight, bytes] : stored->bytes)
        EXPECT_TRUE(made->bytes.at(weight) == bytes) << weight << " of rank " << rank << " of " << ranks;
    }
  }

  EngineOptions options = testing::rank_golden_options(golden);
  options.quantization = format;
  const std::vector<Completion> one = scored(options, golden);
  EngineOptions of_files = testing::rank_golden_options(golden);
  of_files.model_path = published.path();
  EXPECT_EQ(between(one, scored(of_files, golden)).absolute, 0);
  options.tp_size = 2;
  EXPECT_LE(between(scored(options, golden), one).relative, 1e-5) << "two ranks";
}

// fp8 has a scale for each block, int8 for each row, and int4 and nvfp4 for each group of a row's columns. The
// checkpoints of mixtral, deepseek-v3 and qwen3-moe store each expert's matrices as separate tensors. phi3 stores q, k
// and v as one matrix. qwen3.5-text has delta nets beside attention.
INSTANTIATE_TEST_SUITE_P(Goldens, QuantisedAtStart,
                         ::testing::Combine(::testing::Values("qwen3", "mixtral"),
                                            ::testing::Values("fp8", "int8", "int4", "nvfp4")));
INSTANTIATE_TEST_SUITE_P(MoreFamilies, QuantisedAtStart,
                         ::testing::Values(std::tuple("qwen3.5-text", "fp8"), std::tuple("deepseek-v3", "fp8"),
                                           std::tuple("phi3", "int4"), std::tuple("qwen3-moe", "fp8")));

// The limits below are those of small models with random weights. A trained model loses less precision.
class RoundedLogits : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundedLogits, AreAsNearAsTheFormatRounds) {
  const Golden golden = read_golden(GetParam());
  EngineOptions options = testing::rank_golden_options(golden);
  const std::vector<Completion> exact = scored(options, golden);
  for (const auto& [format, most] :
       {std::pair{"fp8", 0.25}, std::pair{"int8", 0.1}, std::pair{"int4", 0.8}, std::pair{"nvfp4", 0.8}}) {
    options.quantization = format;
    const double d = between(scored(options, golden), exact).relative;
    std::printf("%s %s: relative difference %.1e\n", GetParam(), format, d);
    EXPECT_GT(d, 1e-4) << format;
    EXPECT_LE(d, most) << format;
  }
}

// Three of the models stack the matrices of all experts in one tensor. gemma4-moe and qwen3.5-moe store the matrices
// plainly. gpt-oss stores them transposed and interleaved, with biases.
INSTANTIATE_TEST_SUITE_P(Goldens, RoundedLogits,
                         ::testing::Values("llama", "qwen3", "gemma2", "gemma4-e", "mixtral", "gemma4-moe", "gpt-oss",
                                           "deepseek-v3", "qwen3.5-text", "qwen3.5-moe", "qwen3-next"),
                         testing::case_name);

// Covers a separate head (llama), heads that are tied to the embeddings, and a tied head with a soft cap (gemma2).
class RoundedHead : public ::testing::TestWithParam<const char*> {};

TEST_P(RoundedHead, LogitsAreAsNearAsTheFormatRounds) {
  const Golden golden = read_golden(GetParam());
  const EngineOptions plain = testing::rank_golden_options(golden);
  const std::vector<Completion> exact = scored(plain, golden);
  for (const auto& [format, most] :
       {std::pair{"fp8", 0.1}, std::pair{"int8", 0.05}, std::pair{"int4", 0.3}, std::pair{"nvfp4", 0.3}}) {
    EngineOptions options = plain;
    options.lm_head_quantization = format;
    const std::vector<Completion> one = scored(options, golden);
    const double d = between(one, exact).relative;
    std::printf("%s, head as %s: relative difference %.1e\n", GetParam(), format, d);
    EXPECT_GT(d, 1e-4) << format;
    EXPECT_LE(d, most) << format;
    options.tp_size = 2;
    EXPECT_LE(between(scored(options, golden), one).relative, 1e-5) << format << " on two ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, RoundedHead, ::testing::Values("llama", "gemma2", "qwen3", "qwen3.5-text"),
                         testing::case_name);

// Scores prompts and the model's own continuations.
TEST(RoundedLogits, OfATrainedModelAreNearer) {
  const Json golden = *Json::read_file(testing::data_path("demo/golden.json"));
  std::vector<Request> requests;
  for (const Json& entry : golden.as_array()) {
    std::vector<TokenId> text = testing::ids_of(*entry.find("input_ids"));
    for (const TokenId id : testing::ids_of(*entry.find("output_ids"))) text.push_back(id);
    requests.push_back({.prompt = std::move(text), .sampling = {}, .score = true});
  }
  EngineOptions options{
      .model_path = testing::source_path("models/demo"), .device = testing::test_device_name(), .dtype = "float32"};
  options.context_length = 512;
  const std::vector<Completion> exact = run(options, requests);
  for (const auto& [format, most] :
       {std::pair{"fp8", 0.05}, std::pair{"int8", 0.02}, std::pair{"int4", 0.2}, std::pair{"nvfp4", 0.2}}) {
    options.quantization = format;
    const double d = between(run(options, requests), exact).relative;
    std::printf("the demo model, %s: relative difference %.1e\n", format, d);
    EXPECT_GT(d, 1e-4) << format;
    EXPECT_LE(d, most) << format;
  }
}

}  // namespace
}  // namespace tessera
