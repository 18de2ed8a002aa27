// Catches: low-rank adapters whose logits differ from PEFT's; a row whose bits depend on the adapters of other rows;
// cached keys that one adapter computed and another adapter reuses; captured graphs that, with adapters, give other
// results than the same kernels launched one by one.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "adapter_golden.h"
#include "golden.h"
#include "golden_cases.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/device/testing/environment.h"
#include "tessera/engine/adapters/random_adapter.h"
#include "tessera/engine/engine.h"
#include "tessera/model/family.h"
#include "tessera/model/quantise/quantised_output.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::distance;
using testing::five_adapters;
using testing::folder_of;
using testing::Golden;
using testing::greedy;
using testing::kBothAdapters;
using testing::load;
using testing::make_engine;
using testing::options_for;
using testing::read_golden_folder;
using testing::run_one;
using testing::scored;

struct Case {
  const char* base;
  const char* adapter;
};

class AdapterGoldens : public ::testing::TestWithParam<Case> {};

TEST_P(AdapterGoldens, LogitsEqualPeft) {
  if (const std::string why = testing::absent_golden(GetParam().adapter); !why.empty()) GTEST_SKIP() << why;
  const Golden golden = read_golden_folder(folder_of(GetParam().adapter));
  for (const bool graphs : {true, false}) {
    EngineOptions options = options_for(GetParam().base);
    options.graphs.disable_cuda_graph = !graphs;
    options.adapters.paths = {{.name = "tuned", .path = golden.folder}};
    options.adapters.limits.targets = testing::targets_of(GetParam().adapter);
    options.adapters.limits.saved = testing::saved_by(GetParam().adapter);
    const std::unique_ptr<Engine> engine = make_engine(options);
    ASSERT_NE(engine, nullptr);
    double greatest = 0;
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      const Completion done = run_one(*engine, scored(golden.prompts[i], "tuned"));
      greatest = std::max(greatest, distance(done.logits, golden.stored_rows(i)).absolute);
    }
    std::printf("  %s %s: greatest difference %.2e\n", GetParam().adapter, graphs ? "graphs" : "eager", greatest);
    EXPECT_LE(greatest, 1e-4);
  }
}

TEST_P(AdapterGoldens, GreedyTokensEqualPeft) {
  if (const std::string why = testing::absent_golden(GetParam().adapter); !why.empty()) GTEST_SKIP() << why;
  const Golden golden = read_golden_folder(folder_of(GetParam().adapter));
  EngineOptions options = options_for(GetParam().base);
  options.adapters.paths = {{.name = "tuned", .path = golden.folder}};
  options.adapters.limits.targets = testing::targets_of(GetParam().adapter);
  options.adapters.limits.saved = testing::saved_by(GetParam().adapter);
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  std::vector<Request> requests;
  for (const auto& prompt : golden.prompts) requests.push_back(greedy(prompt, "tuned"));
  const Result<std::vector<Completion>> done = engine->run(requests);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*done)[i].output_ids, golden.greedy[i]) << "prompt " << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterGoldens,
                         ::testing::Values(Case{"qwen3", kBothAdapters[0]}, Case{"qwen3", kBothAdapters[1]},
                                           Case{"llama", "llama-lora/r16-pattern"},
                                           Case{"llama", "llama-lora/r4-embed-head"},
                                           Case{"llama", "llama-lora/r8-save-embed-head"},
                                           Case{"qwen3-moe", "qwen3-moe-lora/r4-target-parameters"},
                                           Case{"qwen3-moe", "qwen3-moe-lora/r4-experts-linear"},
                                           Case{"shared/qwen3.5", "shared/qwen3.5-lora/r8-gdn"},
                                           Case{"shared/qwen3.5", "shared/qwen3.5-lora/r16-gdn"}),
                         [](const auto& c) {
                           std::string name = c.param.adapter;
                           for (char& letter : name)
                             letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
                           return name;
                         });

TEST(Adapters, AMixedBatchEqualsEachRequestAlone) {
  EngineOptions options = options_for("qwen3", /*slots=*/5);
  options.deterministic = true;
  options.disable_radix_cache = true;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  testing::expect_mixed_equals_alone(*engine, five_adapters());
}

TEST(Adapters, MoreAdaptersThanSlotsTakeTurns) {
  const std::unique_ptr<Engine> engine = make_engine(options_for("qwen3", /*slots=*/2));
  ASSERT_NE(engine, nullptr);
  std::map<std::string, Golden> goldens;
  std::vector<Request> requests;
  std::vector<std::vector<TokenId>> expected;
  for (const auto& [name, adapter] : five_adapters()) {
    ASSERT_TRUE(load(*engine, name, folder_of(adapter)).ok());
    const Golden golden = read_golden_folder(folder_of(adapter));
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      requests.push_back(greedy(golden.prompts[i], name));
      expected.push_back(golden.greedy[i]);
    }
  }
  const Result<std::vector<Completion>> done = engine->run(requests);
  ASSERT_TRUE(done.ok()) << done.status().to_string();
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ((*done)[i].output_ids, expected[i]) << requests[i].adapter << ", request " << i;
}

TEST(Adapters, ThePrefixCacheKeepsAdaptersApart) {
  const std::unique_ptr<Engine> engine = make_engine(options_for("qwen3"));
  ASSERT_NE(engine, nullptr);
  const Golden first = read_golden_folder(folder_of(kBothAdapters[0]));
  const Golden second = read_golden_folder(folder_of(kBothAdapters[1]));
  const std::size_t longest = first.prompts.size() - 1;
  const auto tokens = [&](const std::string& name) { return run_one(*engine, greedy(first.prompts[longest], name)); };
  ASSERT_TRUE(load(*engine, "tuned", first.folder).ok());
  EXPECT_EQ(tokens("tuned").output_ids, first.greedy[longest]);
  EXPECT_EQ(tokens("").cached_tokens, 0);
  const Completion again = tokens("tuned");
  EXPECT_GT(again.cached_tokens, 0);
  EXPECT_EQ(again.output_ids, first.greedy[longest]);
  ASSERT_TRUE(load(*engine, "tuned", second.folder, /*replace=*/true).ok());
  const Completion replaced = tokens("tuned");
  EXPECT_EQ(replaced.cached_tokens, 0);
  EXPECT_EQ(replaced.output_ids, second.greedy[longest]);
}

TEST(Adapters, BaseRequestsRunTheirOwnGraphs) {
  const std::unique_ptr<Engine> engine = make_engine(options_for("qwen3"));
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(load(*engine, "tuned", folder_of(kBothAdapters[0])).ok());
  const std::vector<TokenId> prompt = read_golden_folder(folder_of(kBothAdapters[0])).prompts[0];
  const auto slot_writes = [&] { return engine->adapters().list()[0].on_device; };
  run_one(*engine, greedy(prompt, ""));
  EXPECT_FALSE(slot_writes());
  run_one(*engine, greedy(prompt, "tuned"));
  EXPECT_TRUE(slot_writes());
  EXPECT_FALSE(engine->runner().dispatch_table().adapter_decode_sizes.empty());
}

TEST(Adapters, VerifyComparesTheirGraphs) {
  const std::unique_ptr<Engine> engine = make_engine(options_for("qwen3"));
  ASSERT_NE(engine, nullptr);
  const Result<VerifyReport> report = verify(engine->runner(), false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  std::map<std::string, int> rows;
  for (const VerifyRow& row : report->rows) {
    ++rows[row.runner];
    EXPECT_EQ(row.difference, "") << row.runner << " " << row.size;
  }
  EXPECT_GT(rows["adapter prefill"], 0);
  EXPECT_GT(rows["adapter prefill, last rows"], 0);
  EXPECT_GT(rows["adapter decode"], 0);
  EXPECT_GT(rows["adapter head"], 0);
}

TEST(Adapters, ThousandLoadsUnderLoad) {
  constexpr int kTokens = 2;
  const std::unique_ptr<Engine> engine = make_engine(options_for("qwen3", /*slots=*/2));
  ASSERT_NE(engine, nullptr);
  const Golden golden = read_golden_folder(folder_of(kBothAdapters[0]));
  const Result<std::shared_ptr<const Adapter>> content =
      Adapter::load(golden.folder, *engine->adapter_layout(), engine->device());
  ASSERT_TRUE(content.ok()) << content.status().to_string();
  std::map<std::int64_t, std::size_t> prompt_of;
  std::size_t finished = 0;
  for (int round = 0; round < 1000; ++round) {
    const std::string name = "tuned" + std::to_string(round);
    ASSERT_TRUE(engine->adapters().load({.name = name}, *content).ok());
    const auto prompt = static_cast<std::size_t>(round) % 3;
    Request request = greedy(golden.prompts[prompt], name);
    request.stop.max_new_tokens = kTokens;
    const Result<RequestId> id = engine->submit(std::move(request));
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    prompt_of[id->value()] = prompt;
    ASSERT_TRUE(engine->adapters().unload(name).ok());
    EXPECT_EQ(engine->submit(greedy(golden.prompts[0], name)).status().code(), StatusCode::kNotFound);
    const auto collect = [&] {
      const auto events = engine->step();
      ASSERT_TRUE(events.ok()) << events.status().to_string();
      for (const RequestEvent& event : *events) {
        if (event.finish == FinishReason::kNone) continue;
        const std::optional<Completion> done = engine->take(event.request);
        ASSERT_TRUE(done.has_value());
        const std::vector<TokenId>& expected = golden.greedy[prompt_of[event.request.value()]];
        ASSERT_EQ(done->output_ids, std::vector(expected.begin(), expected.begin() + kTokens));
        ++finished;
      }
    };
    collect();
    while (round == 999 && !engine->idle()) collect();
  }
  EXPECT_EQ(finished, 1000u);
  EXPECT_TRUE(engine->adapters().list().empty());
  EXPECT_EQ(content->use_count(), 1 + 2) << "the test, and what was last written to each slot";
}

// The greatest relative distances of an engine's logits from PEFT's, with the adapter "tuned" and without it.
struct Distances {
  double with = 0;
  double without = 0;
};
Distances distances_from(Engine& engine, const Golden& golden) {
  Distances greatest;
  for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
    const std::vector<float> want = golden.stored_rows(i);
    const auto of = [&](const char* adapter) {
      return distance(run_one(engine, scored(golden.prompts[i], adapter)).logits, want).relative;
    };
    greatest.with = std::max(greatest.with, of("tuned"));
    greatest.without = std::max(greatest.without, of(""));
  }
  return greatest;
}

// A format to which the base model is quantised at the start, and the limit for the distance of the logits from PEFT's.
struct Rounding {
  const char* format;
  double most;
};

class RoundedBases : public ::testing::TestWithParam<Rounding> {};

TEST_P(RoundedBases, TakeTheWholeChange) {
  const Golden golden = read_golden_folder(folder_of(kBothAdapters[0]));
  EngineOptions options = options_for("qwen3");
  options.quantization = GetParam().format;
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(load(*engine, "tuned", golden.folder).ok());
  const auto [with, without] = distances_from(*engine, golden);
  std::printf("  %s: relative distance with the adapter %.3f, without %.3f\n", GetParam().format, with, without);
  EXPECT_LE(with, GetParam().most);
  EXPECT_GE(without, 2 * GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundedBases,
                         ::testing::Values(Rounding{"int8", 0.03}, Rounding{"fp8", 0.15}, Rounding{"int4", 0.5}),
                         [](const auto& c) { return std::string(c.param.format); });

// The base checkpoints have weights in FP8 or in int4.
class QuantisedBases : public ::testing::TestWithParam<const char*> {};

TEST_P(QuantisedBases, ServeAdaptersBesideBaseRequests) {
  EngineOptions options = options_for(GetParam());
  options.deterministic = true;
  options.disable_radix_cache = true;
  options.adapters.limits.targets = {std::string(kAllLinears), "lm_head"};
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  const std::vector<TokenId> prompt = testing::read_golden(GetParam()).prompts[0];
  const Completion before = run_one(*engine, scored(prompt, ""));
  const test::ScratchDir folder;
  test::write_random_adapter(folder.path(), *engine->adapter_layout(), 1);
  ASSERT_TRUE(load(*engine, "tuned", folder.path()).ok());
  const Completion tuned = run_one(*engine, scored(prompt, "tuned"));
  const Result<std::vector<Completion>> mixed =
      engine->run(std::vector{scored(prompt, ""), scored(prompt, "tuned"), scored(prompt, "")});
  ASSERT_TRUE(mixed.ok()) << mixed.status().to_string();
  EXPECT_EQ((*mixed)[0].logits, before.logits);
  EXPECT_EQ((*mixed)[1].logits, tuned.logits);
  EXPECT_GT(distance(tuned.logits, before.logits).relative, 0.01);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantisedBases,
                         ::testing::Values("quantised/qwen3-fp8-block", "quantised/llama-fbgemm-fp8",
                                           "quantised/qwen3-gptq", "quantised/llama-awq"),
                         testing::case_name);

// A base model that the test writes to a GGUF file with weights of type `type`, and an adapter for this model. GGUF
// files of Llama store the rows of q and k in another order than Hugging Face's checkpoints and adapters.
struct FileBase {
  const char* type;
  const char* base;
  const char* adapter;
  double most;  // limit for the relative distance of the logits from PEFT's
};
void PrintTo(const FileBase& of, std::ostream* to) { *to << of.type << " of " << of.base; }

class FileBases : public ::testing::TestWithParam<FileBase> {};

TEST_P(FileBases, TakeTheAdapterOfTheCheckpoint) {
  const Golden golden = read_golden_folder(folder_of(GetParam().adapter));
  const test::ScratchDir folder;
  EngineOptions options = options_for(GetParam().base);
  const Result<std::unique_ptr<QuantisedOutput>> file =
      plan_quantised(options.model_path, GetParam().type, built_in_ops(), built_in_families(), nullptr);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  options.model_path = folder.path() + "/base.gguf";
  ASSERT_TRUE((*file)->write(options.model_path, [](std::int64_t) { return ok_status(); }).ok());
  const std::unique_ptr<Engine> engine = make_engine(options);
  ASSERT_NE(engine, nullptr);
  ASSERT_TRUE(load(*engine, "tuned", golden.folder).ok());
  const auto [with, without] = distances_from(*engine, golden);
  std::printf("  %s of %s: relative distance with the adapter %.1e, without %.3f\n", GetParam().type, GetParam().base,
              with, without);
  EXPECT_LE(with, GetParam().most);
  EXPECT_GE(without, 2 * GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(Formats, FileBases,
                         ::testing::Values(FileBase{"F32", "llama", "llama-lora/r16-pattern", 1e-4},
                                           FileBase{"Q8_0", "llama", "llama-lora/r16-pattern", 0.03},
                                           FileBase{"F32", "qwen3", kBothAdapters[1], 1e-4}),
                         [](const auto& of) { return std::string(of.param.type) + "_" + of.param.base; });

TEST(Adapters, RefuseWhatTheyDoNotGoWith) {
  EngineOptions halves = options_for("qwen3");
  halves.two_batch_overlap = true;
  const auto error = [](const EngineOptions& options) { return Engine::create(options).status().message(); };
  EXPECT_NE(error(halves).find("enable_lora: enable_two_batch_overlap"), std::string::npos) << error(halves);
  EngineOptions rank = options_for("qwen3");
  rank.adapters.limits.max_rank = 4;
  rank.adapters.paths = {{.name = "tuned", .path = folder_of(kBothAdapters[0])}};
  EXPECT_NE(error(rank).find("at most 4 is accepted (max_lora_rank)"), std::string::npos) << error(rank);
  EngineOptions head = options_for("llama");
  head.adapters.paths = {{.name = "tuned", .path = folder_of("llama-lora/r4-embed-head")}};
  EXPECT_NE(error(head).find("(lora_target_modules)"), std::string::npos) << error(head);
  EngineOptions whole = options_for("llama");
  whole.adapters.paths = {{.name = "tuned", .path = folder_of("llama-lora/r8-save-embed-head")}};
  EXPECT_NE(error(whole).find("lora_modules_to_save"), std::string::npos) << error(whole);
  EngineOptions other = options_for("llama");
  other.adapters.paths = {{.name = "tuned", .path = folder_of(kBothAdapters[0])}};
  EXPECT_NE(error(other).find("lora_paths: tuned="), std::string::npos) << error(other);
}

}  // namespace
}  // namespace tessera
