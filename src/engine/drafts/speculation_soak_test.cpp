// Catches: drafts that change a request's output. The conditions are random: cached prefixes of other requests, prompts
// in chunks, preemption, cancelled neighbours, greedy and random sampling, limited reasoning, adapters.
// TESSERA_SOAK_PROMPTS sets the number of prompts for each model (default 64).
#include <gtest/gtest.h>

#include <random>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/engine/adapters/random_adapter.h"
#include "tessera/engine/engine_test_util.h"
#include "tessera/ops/testing/ranks.h"

namespace tessera {
namespace {

struct SoakCase {
  const char* name;
  const char* model;  // the model's folder below tests/data
  DraftSource source = DraftSource::kText;
  const char* draft = "";  // draft folder below tests/data, if the source needs one
  int ranks = 1;
  int stages = 1;
  bool adapters = false;  // some requests have a low-rank adapter
};
void PrintTo(const SoakCase& soak, std::ostream* to) { *to << soak.name; }

constexpr SoakCase kCases[] = {
    {.name = "Text", .model = "goldens/llama"},
    {.name = "TextOfWindows", .model = "goldens/gemma3"},
    {.name = "TextOfStates", .model = "goldens/qwen3-next"},
    {.name = "LayerOfLatents", .model = "drafts/mtp-deepseek-v3", .source = DraftSource::kLayer},
    {.name = "LayerOfExperts", .model = "drafts/mtp-glm4-moe", .source = DraftSource::kLayer},
    {.name = "LayerOfStates", .model = "drafts/mtp-qwen3.5", .source = DraftSource::kLayer},
    {.name = "Eagle", .model = "goldens/llama", .source = DraftSource::kEagle, .draft = "drafts/llama-eagle3"},
    {.name = "EagleBesideWindows",
     .model = "goldens/qwen2-swa",
     .source = DraftSource::kEagle,
     .draft = "drafts/llama-eagle3"},
    {.name = "EagleBesideWindowsOnly",
     .model = "goldens/mistral-swa",
     .source = DraftSource::kEagle,
     .draft = "drafts/llama-eagle3"},
    {.name = "EagleOfExperts",
     .model = "goldens/qwen3-moe",
     .source = DraftSource::kEagle,
     .draft = "drafts/qwen3-moe-eagle3"},
    {.name = "TextOfTwoRanks", .model = "goldens/llama", .ranks = 2},
    {.name = "LayerOfTwoRanks", .model = "drafts/mtp-glm4-moe", .source = DraftSource::kLayer, .ranks = 2},
    {.name = "EagleOfTwoRanks",
     .model = "goldens/llama",
     .source = DraftSource::kEagle,
     .draft = "drafts/llama-eagle3",
     .ranks = 2},
    {.name = "TextOfAPipeline", .model = "goldens/llama", .stages = 2},
    {.name = "LayerOfAPipeline", .model = "drafts/mtp-glm4-moe", .source = DraftSource::kLayer, .stages = 2},
    {.name = "TextOfAdapters", .model = "goldens/llama", .adapters = true},
    {.name = "LayerOfAdapters", .model = "drafts/mtp-qwen3.5", .source = DraftSource::kLayer, .adapters = true},
    {.name = "EagleOfAdapters",
     .model = "goldens/llama",
     .source = DraftSource::kEagle,
     .draft = "drafts/llama-eagle3",
     .adapters = true},
    {.name = "ModelItself", .model = "goldens/llama", .source = DraftSource::kModel, .draft = "goldens/llama"},
    {.name = "ModelBesideWindowsOnly",
     .model = "goldens/mistral-swa",
     .source = DraftSource::kModel,
     .draft = "goldens/llama"},
    {.name = "OtherModel", .model = "goldens/llama", .source = DraftSource::kModel, .draft = "goldens/qwen3-d128"},
    {.name = "ModelBesideWindows", .model = "goldens/gemma3", .source = DraftSource::kModel, .draft = "goldens/llama"},
    {.name = "ModelBesideStates",
     .model = "goldens/qwen3-next",
     .source = DraftSource::kModel,
     .draft = "goldens/qwen3"},
    {.name = "ModelBesideExperts",
     .model = "goldens/qwen3-moe",
     .source = DraftSource::kModel,
     .draft = "goldens/qwen3"},
    {.name = "ModelOfTwoRanks",
     .model = "goldens/llama",
     .source = DraftSource::kModel,
     .draft = "goldens/llama",
     .ranks = 2},
    {.name = "ModelOfAdapters",
     .model = "goldens/llama",
     .source = DraftSource::kModel,
     .draft = "goldens/llama",
     .adapters = true}};

using Random = std::mt19937;

std::int32_t draw(Random& random, std::int32_t low, std::int32_t high) {
  return std::uniform_int_distribution<std::int32_t>(low, high)(random);
}

// Prompts begin with one of a few texts, so that prefixes are found again. Half of the requests may choose only a few
// tokens. The texts of these requests repeat themselves, so some drafts are kept.
Request random_request(Random& random, bool adapters) {
  Request made = test::request(draw(random, 1, 36), draw(random, 1, 24), draw(random, 1, 4));
  const std::int32_t own = draw(random, 0, 6);
  for (std::int32_t i = 0; i < own; ++i) made.prompt.emplace_back(draw(random, 3, 400));
  if (draw(random, 0, 2) == 0) made.sampling = {.temperature = 0.7, .seed = draw(random, 0, 1000)};
  if (draw(random, 0, 1) == 0) made.sampling.allowed_tokens = {TokenId(5), TokenId(6), TokenId(draw(random, 7, 9))};
  if (draw(random, 0, 7) == 0) made.sampling.presence_penalty = 0.5;
  if (made.sampling.allowed_tokens.empty() && draw(random, 0, 2) == 0)
    made.reasoning_limit = {.tokens = draw(random, 1, 9), .opened = true, .closing_ids = {TokenId(5), TokenId(6)}};
  if (adapters && draw(random, 0, 2) > 0) made.adapter = std::string("tuned") + std::to_string(draw(random, 0, 2));
  return made;
}

// Runs the requests, up to `company` at once, and cancels request i after some steps if cancelled[i] is set.
std::vector<std::vector<TokenId>> run(Engine& engine, const std::vector<Request>& requests, std::size_t company,
                                      const std::vector<bool>& cancelled) {
  std::vector<std::vector<TokenId>> outputs(requests.size());
  std::vector<std::pair<std::size_t, RequestId>> running;
  std::size_t next = 0;
  for (int steps = 0; next < requests.size() || !running.empty(); ++steps) {
    while (next < requests.size() && running.size() < company) {
      running.emplace_back(next, engine.submit(requests[next]).value());
      ++next;
    }
    const Result<std::span<RequestEvent>> events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().to_string();
    if (steps % 5 == 0 && !running.empty() && cancelled[running.back().first]) engine.cancel(running.back().second);
    std::erase_if(running, [&](const auto& entry) {
      const std::optional<Completion> done = engine.take(entry.second);
      if (done) outputs[entry.first] = done->output_ids;
      return done.has_value();
    });
  }
  return outputs;
}

// Loads three adapters; the device has slots for two of them. One adapter replaces the head and the embedding.
void load_adapters(Engine& engine) {
  for (std::uint32_t i = 0; i < 3; ++i) {
    const test::ScratchDir folder;
    test::write_random_adapter(folder.path(), *engine.adapter_layout(), i);
    const Result<std::shared_ptr<const Adapter>> content =
        Adapter::load(folder.path(), *engine.adapter_layout(), engine.device());
    ASSERT_TRUE(content.ok()) << content.status().to_string();
    ASSERT_TRUE(engine.adapters().load({.name = "tuned" + std::to_string(i)}, *content).ok());
  }
}

class SpeculationSoak : public ::testing::TestWithParam<SoakCase> {};

TEST_P(SpeculationSoak, OutputsAreThoseOfPlainDecodes) {
  const SoakCase& soak = GetParam();
  const int devices = soak.ranks * soak.stages;
  if (!testing::has_devices_for(devices)) GTEST_SKIP() << "needs " << devices << " GPUs";
  EngineOptions options = test::small_options();
  options.model_path = testing::data_path(soak.model);
  options.tp_size = soak.ranks;
  options.pp_size = soak.stages;
  options.drafts.for_all_requests = true;
  options.deterministic = true;
  options.chunked_prefill_size = 32;
  options.max_running_requests = 64;
  options.max_total_tokens = 512;
  options.adapters = {.enabled = soak.adapters, .limits = {.slots = 2, .saved = {}}, .paths = {}};
  if (soak.adapters) options.adapters.limits.saved = {"embed_tokens", "lm_head"};
  const std::unique_ptr<Engine> plain = test::make_engine(options);
  options.drafts.source = soak.source;
  if (options.drafts.from_folder()) options.drafts.model_path = testing::data_path(soak.draft);
  const std::unique_ptr<Engine> drafting = test::make_engine(options);
  for (Engine* engine : {plain.get(), drafting.get()})
    if (soak.adapters) load_adapters(*engine);

  const int prompts = std::stoi(testing::environment_or("TESSERA_SOAK_PROMPTS", "64"));
  Random random(7);
  for (int done = 0; done < prompts;) {
    const std::int32_t count = std::min(draw(random, 1, 40), prompts - done);
    std::vector<Request> requests;
    std::vector<bool> cancelled;
    for (std::int32_t i = 0; i < count; ++i) {
      requests.push_back(random_request(random, soak.adapters));
      cancelled.push_back(draw(random, 0, 9) == 0);
    }
    const auto company = static_cast<std::size_t>(draw(random, 1, 64));
    const auto want = run(*plain, requests, company, std::vector<bool>(requests.size(), false));
    const auto got = run(*drafting, requests, company, cancelled);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      // The output of a cancelled request is a prefix of the whole output, or empty.
      const auto length = cancelled[i] ? std::min(got[i].size(), want[i].size()) : want[i].size();
      EXPECT_EQ(got[i], std::vector<TokenId>(want[i].begin(), want[i].begin() + static_cast<std::ptrdiff_t>(length)))
          << "request " << done + static_cast<int>(i);
    }
    if (HasFailure()) return;
    done += count;
  }
  // Under random adapters, fewer of the drafts of a layer with random weights are kept.
  EXPECT_GT(drafting->stats().drafts.kept, soak.adapters ? 0 : prompts / 4);
  EXPECT_GT(drafting->stats().drafts.drafted, drafting->stats().drafts.kept);
  RecordProperty("drafted", static_cast<int>(drafting->stats().drafts.drafted));
  RecordProperty("kept", static_cast<int>(drafting->stats().drafts.kept));
}

INSTANTIATE_TEST_SUITE_P(Sources, SpeculationSoak, ::testing::ValuesIn(kCases),
                         [](const auto& soak) { return std::string(soak.param.name); });

}  // namespace
}  // namespace tessera
