// Catches: a family that a plugin defines as graph text and whose results differ from those of the same family in C++
// (because the engine loads other weights than the text names, does not plan a cache group, does not stage an input, or
// cuts the graph elsewhere); a faulty family whose error does not name the fault.
//
// The family is examples/model/plain_llama.c; the faulty families are variants of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "golden.h"
#include "golden_cases.h"
#include "tessera/engine/engine.h"
#include "tessera/model/model.h"
#include "tessera/ops/built_in_ops.h"
#include "tessera/plugin/load.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::Distance;
using testing::Golden;
using ::testing::HasSubstr;
using testing::read_golden;

constexpr const char* kCases[] = {"llama", "llama-d64", "llama-d128", "llama-linear", "llama-yarn", "llama3-rope-tied"};

// A copy of a golden checkpoint with another architecture name in its config.json.
class Renamed {
 public:
  Renamed(const std::string& folder, const std::string& architecture)
      : path_(std::filesystem::temp_directory_path() / ("tessera_family_" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
    for (const auto& file : std::filesystem::directory_iterator(folder))
      if (file.is_regular_file() && file.path().filename() != "config.json")
        std::filesystem::create_symlink(std::filesystem::absolute(file.path()), path_ / file.path().filename());
    Json config = *Json::read_file(folder + "/config.json");
    config.set("architectures", Json(Json::Array{Json(architecture)}));
    std::ofstream(path_ / "config.json") << config.dump();
  }
  ~Renamed() { std::filesystem::remove_all(path_); }
  Renamed(const Renamed&) = delete;
  Renamed& operator=(const Renamed&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::shared_ptr<const Registry> registry_with(const std::string& plugin) {
  auto loaded = plugin::load_plugins({std::string(TESSERA_TEST_PLUGINS) + "/" + plugin + ".so"});
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  return loaded.ok() ? *loaded : shared_built_ins();
}

enum class Way { kGraphs, kEager, kChunked, kFullGraph };

std::unique_ptr<Engine> start(const std::string& folder, Way way, const std::string& dtype,
                              std::shared_ptr<const Registry> registry) {
  EngineOptions options{.model_path = folder, .device = "cpu", .dtype = dtype};
  options.context_length = 1600;
  options.max_running_requests = 16;
  options.chunked_prefill_size = way == Way::kChunked ? 16 : 1600;
  options.graphs.piecewise_tokens = {4, 16};
  if (way != Way::kChunked) options.graphs.piecewise_tokens = {4, 16, 48, 256, 1600};
  options.graphs.disable_cuda_graph = way == Way::kEager;
  if (way == Way::kFullGraph) options.graphs.mode = GraphMode::kFull;
  options.registry = std::move(registry);
  auto engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

std::vector<Completion> run(Engine& engine, const Golden& golden, bool score) {
  std::vector<Request> requests;
  for (const auto& prompt : golden.prompts) {
    Request request{.prompt = prompt, .sampling = {}, .stop = {.ignore_eos = true}, .score = score};
    if (!score) request.stop.max_new_tokens = 12;
    requests.push_back(std::move(request));
  }
  return *engine.run(requests);
}

class TextFamily : public ::testing::TestWithParam<const char*> {};

TEST_P(TextFamily, LogitsAreTheBuiltInFamilysToTheBit) {
  const Golden golden = read_golden(GetParam());
  const Renamed renamed(golden.folder, "PlainLlamaForCausalLM");
  const auto registry = registry_with("plain_llama");
  for (const Way way : {Way::kGraphs, Way::kEager, Way::kChunked, Way::kFullGraph}) {
    const auto built_in = start(golden.folder, way, "float32", shared_built_ins());
    const auto own = start(renamed.path(), way, "float32", registry);
    ASSERT_TRUE(built_in != nullptr && own != nullptr);
    const std::vector<Completion> want = run(*built_in, golden, /*score=*/true);
    const std::vector<Completion> got = run(*own, golden, /*score=*/true);
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) {
      ASSERT_EQ(got[i].logits.size(), want[i].logits.size());
      EXPECT_EQ(std::memcmp(got[i].logits.data(), want[i].logits.data(), want[i].logits.size() * sizeof(float)), 0)
          << "way " << static_cast<int>(way) << " prompt " << i;
      EXPECT_LE(testing::distance(got[i].logits, golden.stored_rows(i)).absolute, 1e-4) << "prompt " << i;
    }
    const std::vector<Completion> tokens = run(*own, golden, /*score=*/false);
    for (std::size_t i = 0; i < golden.prompts.size(); ++i) EXPECT_EQ(tokens[i].output_ids, golden.greedy[i]) << i;
    const bool graphs = way != Way::kEager;
    for (const auto& [key, forwards] : own->runner().counters().by_key)
      EXPECT_EQ(key.runner == RunnerKind::kEager, !graphs) << runner_kind_name(key.runner) << " " << key.size;
  }
}

TEST_P(TextFamily, VerifyPasses) {
  const Golden golden = read_golden(GetParam());
  const Renamed renamed(golden.folder, "PlainLlamaForCausalLM");
  const auto own = start(renamed.path(), Way::kGraphs, "float32", registry_with("plain_llama"));
  ASSERT_NE(own, nullptr);
  const auto report = verify(own->runner(), /*show_progress=*/false);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->equal());
}

INSTANTIATE_TEST_SUITE_P(Llama, TextFamily, ::testing::ValuesIn(kCases), testing::case_name);

// The model of the plugin's family also has the cache groups of the built-in family's model, and as many parameters,
// weights, inputs and states.
TEST(TextFamily, ItsParametersAreTheBuiltInFamilys) {
  const std::string folder = read_golden("llama").folder;
  const Renamed renamed(folder, "PlainLlamaForCausalLM");
  const auto registry = registry_with("plain_llama");
  const auto build = [&](const std::string& path) {
    const ModelConfig config = *ModelConfig::read(path, registry->families);
    return *build_model(config, {.dtype = ir::DType::kBFloat16}, registry->ops, registry->families);
  };
  const ModelGraphs want = build(folder);
  const ModelGraphs got = build(renamed.path());
  EXPECT_EQ(parameter_count(got.weights), parameter_count(want.weights));
  EXPECT_EQ(got.weights.size(), want.weights.size());
  EXPECT_EQ(got.body.cache_groups, want.body.cache_groups);
  EXPECT_EQ(got.body.states.size(), want.body.states.size());
  EXPECT_EQ(got.body.inputs.size(), want.body.inputs.size());
}

// A family with its own graph does not read `sliding_window` and `layer_types` from config.json. Instead, its graph
// decides which layers attend to which tokens.
TEST(TextFamily, KeepsTheGraphsOwnFields) {
  const auto registry = registry_with("plain_llama");
  const auto read = [&](const std::string& architecture) {
    Json json = *Json::parse(R"({"vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 2048, "hidden_act": "relu2", "sliding_window": "wide",
        "layer_types": ["linear_attention", "sliding_attention"]})",
                             "config");
    json.set("architectures", Json(Json::Array{Json(architecture)}));
    return ModelConfig::from_json(json, "config.json", registry->families);
  };
  const Result<ModelConfig> own = read("PlainLlamaForCausalLM");
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_EQ(own->sliding_windows, std::vector<std::int64_t>(2, 0));
  EXPECT_FALSE(read("LlamaForCausalLM").ok());
}

// The example reads fields as the engine does: null means absent, and a field of a nested object belongs only to that
// object.
TEST(TextFamily, TheExampleReadsItsOwnFieldsAlone) {
  const auto registry = registry_with("plain_llama");
  const auto build = [&](const std::string& architecture, const std::string& members) -> Result<ModelGraphs> {
    Json json = *Json::parse("{" + members + "}", "config");
    json.set("architectures", Json(Json::Array{Json(architecture)}));
    const ModelConfig config = TRY(ModelConfig::from_json(json, "config.json", registry->families));
    return build_model(config, {.dtype = ir::DType::kBFloat16}, registry->ops, registry->families);
  };
  const std::string sizes = R"("vocab_size": 512, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
      "num_attention_heads": 4, "max_position_embeddings": 2048, "num_key_value_heads": null, "head_dim": null)";
  const std::string other = R"("other": {"head_dim": 8, "list": [{"mlp_bias": true}], "text": "\"head_dim\": 2"}, )";
  for (const std::string& members : {sizes, other + sizes, "\"text_config\": {" + sizes + "}"}) {
    const auto want = build("LlamaForCausalLM", members);
    const auto got = build("PlainLlamaForCausalLM", members);
    ASSERT_TRUE(want.ok() && got.ok()) << want.status().to_string() << got.status().to_string();
    EXPECT_EQ(parameter_count(got->weights), parameter_count(want->weights)) << members;
    const auto state = [](const ModelGraphs& graphs) {
      return graphs.body.value(graphs.body.states[0]).type.to_string();
    };
    EXPECT_EQ(state(*got), state(*want)) << members;
  }
  for (const char* bias : {"attention_bias", "mlp_bias"}) {
    const std::string with_bias = sizes + ", \"" + bias + "\": ";
    EXPECT_EQ(build("PlainLlamaForCausalLM", with_bias + "true").status().code(), StatusCode::kUnimplemented) << bias;
    EXPECT_TRUE(build("PlainLlamaForCausalLM", with_bias + "false").ok()) << bias;
  }
}

struct FaultyFamily {
  std::string name, words;
};
class FaultyFamilies : public ::testing::TestWithParam<FaultyFamily> {};

TEST_P(FaultyFamilies, ErrorsNameFamilyAndLine) {
  const Renamed renamed(read_golden("llama").folder, "Faulty" + GetParam().name);
  EngineOptions options{.model_path = renamed.path(), .device = "cpu", .dtype = "float32"};
  options.registry = registry_with("faulty_family");
  const Status status = Engine::create(options).status();
  EXPECT_THAT(status.message(), HasSubstr("the body of Faulty" + GetParam().name + ": " + GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Families, FaultyFamilies,
    ::testing::Values(FaultyFamily{"Error", "the family is on holiday"},
                      FaultyFamily{"Throws", "the plugin threw an exception, which it must not: out of the blue"},
                      FaultyFamily{"Nothing", "line 1"},
                      FaultyFamily{"Words", "line 2, column 6: found 'my', expected '('"},
                      FaultyFamily{"NoPart", "weight %w: the part is null"},
                      FaultyFamily{"NoTensor", "weight %w: the part has no tensor"},
                      FaultyFamily{"Rank", "weight %w: tensor t has rank 9; 1 to 5 are accepted"},
                      FaultyFamily{"Size", "weight %w: dimension 1 of tensor t is 0"},
                      FaultyFamily{"Huge", "weight %w: dimension 1 of tensor t is 1099511627776"},
                      FaultyFamily{"Slice", "weight %w: the slice of tensor t is 1 of dimension 7"},
                      FaultyFamily{"Transposed", "weight %w: tensor t of rank 1 is transposed"},
                      FaultyFamily{"Twice", "weight %w: it has constants already"},
                      FaultyFamily{"Ignores", "weight %w: 0 constants at null"}),
    [](const auto& fault) { return fault.param.name; });

}  // namespace
}  // namespace tessera
