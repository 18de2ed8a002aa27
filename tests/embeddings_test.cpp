// Catches: an embedding or classifier score that differs from Hugging Face's in one of the engine's ways to compute a
// prompt; a pooled vector that depends on how the prompt is split into prefill chunks; decode graphs that are captured
// for a model that does not decode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "golden.h"
#include "tessera/engine/engine.h"
#include "tessera/model/weights/safetensors.h"
#include "tessera/runner/verify/verify.h"

namespace tessera {
namespace {

using testing::golden_path;
using ::testing::HasSubstr;
using testing::ids_of;
using testing::test_device_name;

enum class Way { kGraphs, kEager, kChunked, kChunkedEager, kFullGraph };
constexpr Way kWays[] = {Way::kGraphs, Way::kEager, Way::kChunked, Way::kChunkedEager, Way::kFullGraph};

EngineOptions options_for(const std::string& name, Way way, const std::string& dtype = "float32") {
  EngineOptions options{.model_path = golden_path(name), .device = test_device_name(), .dtype = dtype};
  options.context_length = 1600;
  options.max_running_requests = 16;
  options.chunked_prefill_size = 1600;
  if (way == Way::kChunked || way == Way::kChunkedEager) options.chunked_prefill_size = 16;
  options.graphs.piecewise_tokens = {4, 16, 48, 256, 1600};
  if (options.chunked_prefill_size == 16) options.graphs.piecewise_tokens = {4, 16};
  options.graphs.disable_cuda_graph = way == Way::kEager || way == Way::kChunkedEager;
  if (way == Way::kFullGraph) options.graphs.mode = GraphMode::kFull;
  return options;
}

std::unique_ptr<Engine> make(const EngineOptions& options) {
  Result<std::unique_ptr<Engine>> engine = Engine::create(options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? *std::move(engine) : nullptr;
}

// Prompts, and Hugging Face's vector for each. In `file`, the vector for prompt i is the tensor "embedding_<i>" or
// "score_<i>", as `kind` says.
struct Vectors {
  std::vector<std::vector<TokenId>> prompts;
  SafetensorsFile file;
  std::string kind;

  std::vector<float> of(std::size_t i) const {
    const StoredTensor* tensor = file.find(kind + "_" + std::to_string(i));
    std::vector<float> values(tensor->data.size() / sizeof(float));
    std::memcpy(values.data(), tensor->data.data(), tensor->data.size());
    return values;
  }
};

Vectors read_vectors(const std::string& name, const std::string& kind) {
  const Json json = *Json::read_file(golden_path(name) + "/golden.json");
  Vectors vectors{
      .prompts = {}, .file = *SafetensorsFile::open(golden_path(name) + "/golden.safetensors"), .kind = kind};
  for (const Json& prompt : json.find("prompts")->as_array()) vectors.prompts.push_back(ids_of(prompt));
  return vectors;
}

std::vector<Completion> run(Engine& engine, const std::vector<Request>& requests, bool together) {
  std::vector<Completion> done;
  for (std::size_t i = 0; i < requests.size(); i += together ? requests.size() : 1) {
    Result<std::vector<Completion>> part = engine.run(std::span(requests).subspan(i, together ? requests.size() : 1));
    EXPECT_TRUE(part.ok()) << part.status().to_string();
    if (part.ok()) done.insert(done.end(), part->begin(), part->end());
  }
  done.resize(requests.size());
  return done;
}

std::vector<Request> pooled_requests(const Vectors& vectors, Pooling pooling) {
  std::vector<Request> requests;
  for (const auto& prompt : vectors.prompts) requests.push_back({.prompt = prompt, .pooling = pooling});
  return requests;
}

// Returns requests that score only the last token. This score is a classifier's result for the text.
std::vector<Request> score_requests(const Vectors& vectors) {
  std::vector<Request> requests;
  for (const auto& prompt : vectors.prompts)
    requests.push_back({.prompt = prompt, .score = true, .score_from = std::ssize(prompt) - 1});
  return requests;
}

std::vector<float> embedding(const Engine& engine, const Completion& done) {
  if (std::ssize(done.pooled) != engine.config().hidden_size) return {};
  return engine.embedding()->finish(done.pooled, engine.config().hidden_size);
}

double greatest_difference(const std::vector<float>& got, const std::vector<float>& want) {
  return testing::distance(got, want).absolute + (got.size() == want.size() ? 0 : INFINITY);
}

void expect_no_decodes(const Engine& engine, Way way) {
  const bool eager = way == Way::kEager || way == Way::kChunkedEager;
  EXPECT_TRUE(engine.stats().graphs->decode.captured.empty());
  for (const auto& [key, forwards] : engine.runner().counters().by_key)
    EXPECT_EQ(key.runner, eager ? RunnerKind::kEager : RunnerKind::kPrefill) << key.size;
}

TEST(Embeddings, Float32OnEveryWayAndWhenCached) {
  const Vectors golden = read_vectors("qwen3-embedding", "embedding");
  for (const Way way : kWays) {
    const std::unique_ptr<Engine> engine = make(options_for("qwen3-embedding", way));
    ASSERT_NE(engine, nullptr);
    ASSERT_TRUE(engine->embedding().has_value());
    EXPECT_EQ(engine->embedding()->pooling, Pooling::kLast);
    EXPECT_TRUE(engine->embedding()->normalise);
    const std::vector<Request> requests = pooled_requests(golden, Pooling::kLast);
    double worst = 0;
    std::int64_t cached = 0;
    for (const bool together : {true, false}) {
      const std::vector<Completion> done = run(*engine, requests, together);
      for (std::size_t i = 0; i < done.size(); ++i) {
        worst = std::max(worst, greatest_difference(embedding(*engine, done[i]), golden.of(i)));
        EXPECT_TRUE(done[i].output_ids.empty());
        EXPECT_EQ(done[i].finish, FinishReason::kLength);
        if (together) continue;
        cached += done[i].cached_tokens;
        EXPECT_EQ(done[i].cached_tokens, (done[i].prompt_tokens - 1) / 16 * 16);
      }
    }
    EXPECT_GT(cached, 100);
    std::printf("qwen3-embedding way %d: greatest difference %.2e, %ld tokens from the cache\n", static_cast<int>(way),
                worst, static_cast<long>(cached));
    EXPECT_LE(worst, 1e-4);
    expect_no_decodes(*engine, way);
  }
}

TEST(Embeddings, Bfloat16) {
  const Vectors golden = read_vectors("qwen3-embedding", "embedding");
  for (const Way way : {Way::kGraphs, Way::kChunkedEager}) {
    const std::unique_ptr<Engine> engine = make(options_for("qwen3-embedding", way, "bfloat16"));
    ASSERT_NE(engine, nullptr);
    const std::vector<Completion> done = run(*engine, pooled_requests(golden, Pooling::kLast), true);
    for (std::size_t i = 0; i < done.size(); ++i) {
      const double relative = testing::distance(embedding(*engine, done[i]), golden.of(i)).relative;
      std::printf("qwen3-embedding bfloat16 way %d prompt %zu: relative difference %.2e\n", static_cast<int>(way), i,
                  relative);
      EXPECT_LE(relative, 2e-2);
    }
  }
}

// Here the expected vectors are computed from the hidden states of all tokens.
TEST(Embeddings, MeanAndFirstAreThoseOfTheHiddenStates) {
  const Vectors golden = read_vectors("qwen3-embedding", "embedding");
  const std::unique_ptr<Engine> whole = make(options_for("qwen3-embedding", Way::kEager));
  ASSERT_NE(whole, nullptr);
  const auto hidden = static_cast<std::size_t>(whole->config().hidden_size);
  std::vector<Request> all;
  for (const auto& prompt : golden.prompts)
    all.push_back({.prompt = prompt, .stop = {.max_new_tokens = 0}, .return_hidden_states = true});
  const std::vector<Completion> states = run(*whole, all, false);
  for (const Way way : kWays) {
    const std::unique_ptr<Engine> engine = make(options_for("qwen3-embedding", way));
    ASSERT_NE(engine, nullptr);
    double worst = 0;
    for (const bool together : {true, false}) {
      const std::vector<Completion> means = run(*engine, pooled_requests(golden, Pooling::kMean), together);
      const std::vector<Completion> firsts = run(*engine, pooled_requests(golden, Pooling::kFirst), together);
      for (std::size_t p = 0; p < golden.prompts.size(); ++p) {
        const std::vector<float>& rows = states[p].hidden_states;
        const std::size_t tokens = golden.prompts[p].size();
        ASSERT_EQ(rows.size(), tokens * hidden);
        std::vector<float> mean(hidden);
        for (std::size_t h = 0; h < hidden; ++h) {
          double sum = 0;
          for (std::size_t t = 0; t < tokens; ++t) sum += static_cast<double>(rows[t * hidden + h]);
          mean[h] = static_cast<float>(sum / static_cast<double>(tokens));
        }
        const std::vector<float> first(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(hidden));
        worst = std::max(worst, greatest_difference(means[p].pooled, mean));
        worst = std::max(worst, greatest_difference(firsts[p].pooled, first));
        EXPECT_EQ(means[p].cached_tokens, 0);
        EXPECT_EQ(firsts[p].cached_tokens, 0);
      }
    }
    std::printf("mean and first, way %d: greatest difference %.2e\n", static_cast<int>(way), worst);
    EXPECT_LE(worst, 1e-4);
  }
}

TEST(Reranker, Float32ScoresOnEveryWayAndWhenCached) {
  const Vectors golden = read_vectors("qwen3-reranker", "score");
  for (const Way way : kWays) {
    const std::unique_ptr<Engine> engine = make(options_for("qwen3-reranker", way));
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->config().num_labels, 1);
    EXPECT_FALSE(engine->generates());
    double worst = 0;
    std::int64_t cached = 0;
    for (const bool together : {true, false}) {
      const std::vector<Completion> done = run(*engine, score_requests(golden), together);
      for (std::size_t i = 0; i < done.size(); ++i) {
        worst = std::max(worst, greatest_difference(done[i].logits, golden.of(i)));
        if (!together) cached += done[i].cached_tokens;
      }
    }
    std::printf("qwen3-reranker way %d: greatest difference %.2e\n", static_cast<int>(way), worst);
    EXPECT_LE(worst, 1e-4);
    EXPECT_GT(cached, 100);
    expect_no_decodes(*engine, way);
  }
}

// A row's score does not depend on whether the request also asks for the scores of earlier rows.
TEST(Reranker, EveryRowHasAScore) {
  const Vectors golden = read_vectors("qwen3-reranker", "score");
  const std::unique_ptr<Engine> engine = make(options_for("qwen3-reranker", Way::kChunked));
  ASSERT_NE(engine, nullptr);
  const std::vector<TokenId>& prompt = golden.prompts[2];
  const std::vector<Completion> done =
      run(*engine, {{.prompt = prompt, .score = true}, {.prompt = prompt, .score = true, .score_from = 5}}, false);
  ASSERT_EQ(done[0].logits.size(), prompt.size());
  ASSERT_EQ(done[1].logits.size(), prompt.size() - 5);
  EXPECT_NEAR(done[0].logits.back(), golden.of(2)[0], 1e-4);
  for (std::size_t i = 5; i < prompt.size(); ++i) EXPECT_NEAR(done[0].logits[i], done[1].logits[i - 5], 1e-5) << i;
}

TEST(ModelsWithoutTokens, PassVerify) {
  for (const char* const name : {"qwen3-embedding", "qwen3-reranker"}) {
    EngineOptions options{.model_path = golden_path(name), .device = test_device_name(), .dtype = "float32"};
    options.max_running_requests = 32;
    const std::unique_ptr<Engine> engine = make(options);
    ASSERT_NE(engine, nullptr);
    const auto report = verify(engine->runner(), /*show_progress=*/false);
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_FALSE(report->rows.empty());
    EXPECT_TRUE(report->equal());
    for (const VerifyRow& row : report->rows)
      EXPECT_EQ(row.difference, "") << name << " " << row.runner << " " << row.size;
  }
}

TEST(ModelsWithoutTokens, RefuseToGenerateAndSayWhatTheyDo) {
  struct Case {
    const char* model;
    Request request;
    const char* message;
  };
  const std::vector<TokenId> prompt = {TokenId(5), TokenId(6), TokenId(7)};
  Request of_prompt{.prompt = prompt, .stop = {.max_new_tokens = 0}};
  of_prompt.logprobs.prompt = 1;
  for (const Case& c : std::initializer_list<Case>{
           {"qwen3-embedding", {.prompt = prompt}, "makes embeddings and no tokens"},
           {"qwen3-embedding", {.prompt = prompt, .score = true}, "makes embeddings and no tokens"},
           {"qwen3-embedding", of_prompt, "makes embeddings and no tokens"},
           {"qwen3-reranker", {.prompt = prompt}, "is a classifier"},
           {"qwen3-reranker", of_prompt, "is a classifier"},
           {"qwen3-reranker", {.prompt = prompt, .score = true, .score_from = 3}, "accepted is 0 to 2"},
           {"qwen3-reranker", {.prompt = prompt, .score = true, .score_from = -1}, "accepted is 0 or more"},
           {"qwen3-embedding", {.prompt = {}, .pooling = Pooling::kLast}, "the prompt is empty"},
       }) {
    const std::unique_ptr<Engine> engine = make(options_for(c.model, Way::kEager));
    ASSERT_NE(engine, nullptr);
    const Result<RequestId> id = engine->submit(c.request);
    ASSERT_FALSE(id.ok()) << c.message;
    EXPECT_EQ(id.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(id.status().message(), HasSubstr(c.message));
  }
}

// A model that generates text can also pool the hidden states of some requests while other requests decode. If it is
// served with --is-embedding, the engine captures no decode graphs.
TEST(OrdinaryModel, PoolsBesideDecodesAndMayBeServedForEmbeddings) {
  const std::vector<TokenId> prompt = testing::read_golden("qwen3").prompts[2];
  const std::unique_ptr<Engine> engine = make(options_for("qwen3", Way::kGraphs));
  ASSERT_NE(engine, nullptr);
  EXPECT_FALSE(engine->stats().graphs->decode.captured.empty());
  const Request generating{.prompt = prompt, .stop = {.max_new_tokens = 8, .ignore_eos = true}};
  std::vector<Request> requests = {generating, {.prompt = {prompt[0]}, .pooling = Pooling::kMean}};
  requests.push_back({.prompt = prompt, .pooling = Pooling::kLast});
  requests.push_back({.prompt = prompt, .stop = {.max_new_tokens = 0}, .return_hidden_states = true});
  const std::vector<Completion> done = run(*engine, requests, true);
  EXPECT_EQ(done[0].output_ids, run(*engine, {generating}, true)[0].output_ids);
  const std::vector<float>& rows = done[3].hidden_states;
  const auto hidden = static_cast<std::ptrdiff_t>(engine->config().hidden_size);
  ASSERT_EQ(std::ssize(rows), std::ssize(prompt) * hidden);
  EXPECT_LE(greatest_difference(done[2].pooled, {rows.end() - hidden, rows.end()}), 1e-5);
  EXPECT_LE(greatest_difference(done[1].pooled, {rows.begin(), rows.begin() + hidden}), 1e-5);

  EngineOptions options = options_for("qwen3", Way::kGraphs);
  options.is_embedding = true;
  const std::unique_ptr<Engine> embeddings = make(options);
  ASSERT_NE(embeddings, nullptr);
  EXPECT_EQ(embeddings->embedding()->pooling, Pooling::kLast);
  EXPECT_TRUE(embeddings->embedding()->normalise);
  EXPECT_LE(greatest_difference(run(*embeddings, {requests[2]}, true)[0].pooled, done[2].pooled), 1e-5);
  EXPECT_TRUE(embeddings->stats().graphs->decode.captured.empty());
}

}  // namespace
}  // namespace tessera
