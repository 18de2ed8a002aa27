// Catches: embeddings and scores that differ from the engine's, or that have another order or encoding than the request
// asked for; a pair of texts that is not joined as the model's files say; and a malformed request whose error does not
// name the wrong field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tessera/base/base64.h"
#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/openai/pooled/embedding_answer.h"
#include "tessera/server/work/classifier_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::demo_tokenizer;
using test::encode;
using testing::error_code;
using testing::get;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::post;
using testing::Running;
using testing::source_path;
using testing::test_device_name;

constexpr double kTolerance = 1e-5;

std::vector<float> pooled(Engine& engine, const std::string& text) {
  const Request request{.prompt = encode(text), .pooling = engine.embedding()->pooling};
  return (*engine.run({&request, 1}))[0].pooled;
}

std::vector<float> embedding(Engine& engine, const std::string& text, std::int64_t dimensions) {
  return engine.embedding()->finish(pooled(engine, text), dimensions);
}

std::vector<float> logits_after(Engine& engine, const std::vector<TokenId>& prompt) {
  const Request request{.prompt = prompt, .score = true, .score_from = std::ssize(prompt) - 1};
  return (*engine.run({&request, 1}))[0].logits;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void expect_near(const Json& numbers, const std::vector<float>& want) {
  ASSERT_EQ(numbers.as_array().size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(numbers.as_array()[i].as_double(), static_cast<double>(want[i]), kTolerance) << i;
}

std::vector<float> decoded(const std::string& base64) {
  const std::string bytes = from_base64(base64).value();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

TEST(Base64, EncodesLittleEndianFloats) {
  EXPECT_EQ(base64_of(std::vector<float>{}), "");
  EXPECT_EQ(base64_of(std::vector<float>{1.0F}), "AACAPw==");
  EXPECT_EQ(base64_of(std::vector<float>{1.0F, -2.0F}), "AACAPwAAAMA=");
  EXPECT_EQ(base64_of(std::vector<float>{0.5F, -2.0F, 3.0F}), "AAAAPwAAAMAAAEBA");
}

class EmbeddingServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { engine_ = make_engine({.is_embedding = true}).release(); }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
  }
  static inline Engine* engine_ = nullptr;
};

TEST_F(EmbeddingServer, ReturnsTheEnginesVectorsInInputOrder) {
  const std::vector<float> fox = embedding(*engine_, "The little fox", 256);
  const std::vector<float> cat = embedding(*engine_, "A cat", 256);
  const std::vector<float> cut = embedding(*engine_, "A cat", 8);
  ASSERT_EQ(fox.size(), 256U);
  ASSERT_EQ(cut.size(), 8U);
  const Running running(*engine_);
  const Json one = running.json(post("/v1/embeddings", R"({"model": "demo", "input": "The little fox"})"));
  EXPECT_EQ(at(one, "object"), Json("list"));
  EXPECT_EQ(at(one, "data.0.object"), Json("embedding"));
  expect_near(at(one, "data.0.embedding"), fox);
  const auto tokens = std::ssize(encode("The little fox"));
  EXPECT_EQ(at(one, "usage.prompt_tokens"), Json(tokens));
  EXPECT_EQ(at(one, "usage.total_tokens"), Json(tokens));

  const Json two =
      running.json(post("/v1/embeddings", R"({"model": "demo", "input": ["A cat", "The little fox", "A cat"]})"));
  ASSERT_EQ(two.find("data")->as_array().size(), 3U);
  expect_near(at(two, "data.0.embedding"), cat);
  expect_near(at(two, "data.1.embedding"), fox);
  EXPECT_EQ(at(two, "data.2.index"), Json(2));

  std::string ids;
  for (const TokenId id : encode("A cat")) ids += (ids.empty() ? "" : ", ") + std::to_string(id.value());
  for (const std::string& input : {"[" + ids + "]", "[[" + ids + "]]"})
    expect_near(
        at(running.json(post("/v1/embeddings", R"({"model": "demo", "input": )" + input + "}")), "data.0.embedding"),
        cat);

  const Json coded = running.json(
      post("/v1/embeddings", R"({"model": "demo", "input": "A cat", "encoding_format": "base64", "dimensions": 8})"));
  const std::vector<float> values = decoded(at(coded, "data.0.embedding").as_string());
  ASSERT_EQ(values.size(), cut.size());
  for (std::size_t i = 0; i < cut.size(); ++i) EXPECT_NEAR(values[i], cut[i], kTolerance);
}

TEST_F(EmbeddingServer, ComparesTextsByTheCosine) {
  const std::vector<float> fox = embedding(*engine_, "The little fox", 256);
  const std::vector<float> cat = embedding(*engine_, "A cat", 256);
  double cosine = 0;
  for (std::size_t i = 0; i < fox.size(); ++i) cosine += static_cast<double>(fox[i]) * static_cast<double>(cat[i]);
  const Running running(*engine_);
  const Json scores =
      running.json(post("/v1/score", R"({"text_1": "The little fox", "text_2": ["A cat", "The little fox"]})"));
  EXPECT_EQ(at(scores, "data.0.object"), Json("score"));
  EXPECT_NEAR(at(scores, "data.0.score").as_double(), cosine, kTolerance);
  EXPECT_NEAR(at(scores, "data.1.score").as_double(), 1, kTolerance);
  const Json ranked = running.json(
      post("/v1/rerank", R"({"query": "The little fox", "documents": ["A cat", {"text": "The little fox"}]})"));
  EXPECT_EQ(at(ranked, "results.0.index"), Json(1));
  EXPECT_EQ(at(ranked, "results.0.document.text"), Json("The little fox"));
  EXPECT_NEAR(at(ranked, "results.1.relevance_score").as_double(), cosine, kTolerance);
}

TEST_F(EmbeddingServer, RefusesToGenerateAndTellsWhatItServes) {
  ServerOptions options;
  options.api_keys = {"secret"};
  {
    const Running locked(*engine_, options);
    for (const char* const path : {"/v1/embeddings", "/v1/rerank", "/rerank", "/v2/rerank", "/v1/score", "/score"})
      EXPECT_EQ(locked.ask(post(path, "{}")).status, 401) << path;
  }
  const Running running(*engine_);
  for (const auto& [path, body] :
       {std::pair("/v1/chat/completions", R"({"model": "demo", "messages": [{"role": "user", "content": "a"}]})"),
        std::pair("/v1/completions", R"({"model": "demo", "prompt": "a"})"),
        std::pair("/generate", R"({"text": "a"})")}) {
    const Json refused = running.json(post(path, body), 400);
    EXPECT_THAT(at(refused, "error.message").as_string(), HasSubstr("accepted: /v1/embeddings")) << path;
    EXPECT_EQ(error_code(refused), "unsupported_value");
  }
  EXPECT_THAT(at(running.json(post("/v1/score", R"({"query": [5], "items": [[6]], "label_token_ids": [1]})"), 400),
                 "error.param"),
              Json("label_token_ids"));
  EXPECT_EQ(running.ask(get("/health_generate")).status, 200);
  EXPECT_EQ(at(running.json(get("/get_model_info")), "is_generation"), Json(false));
  EXPECT_EQ(at(running.json(get("/v1/models")), "data.0.id"), Json("demo"));
  EXPECT_EQ(running.ask(post("/v1/embeddings", R"({"model": "demo", "input": "a"})")).status, 200);
  EXPECT_THAT(running.ask(get("/metrics")).body, HasSubstr("/v1/embeddings"));
}

TEST_F(EmbeddingServer, NamesTheLimitForALongInput) {
  const Running running(*engine_);
  std::string ids = "5";
  for (int i = 1; i < 513; ++i) ids += ",5";
  const Json refused = running.json(post("/v1/embeddings", R"({"model": "demo", "input": [)" + ids + "]}"), 400);
  EXPECT_EQ(error_code(refused), "context_length_exceeded");
  EXPECT_EQ(at(refused, "error.param"), Json("input"));
  EXPECT_THAT(at(refused, "error.message").as_string(), HasSubstr("512 tokens"));
  for (const char* const most : {"-1", "512"}) {
    const Json cut = running.json(post(
        "/v1/embeddings", R"({"model": "demo", "input": [)" + ids + R"(], "truncate_prompt_tokens": )" + most + "}"));
    EXPECT_EQ(at(cut, "usage.prompt_tokens"), Json(512)) << most;
  }
}

// Serves a classifier with the dimensions of the demo model, one label and random weights.
class RerankerServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = ::testing::TempDir() + "/pooled_routes_test";
    Result<std::unique_ptr<Engine>> engine = testing::make_classifier(folder_, R"({"0": "LABEL_0"})");
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = engine->release();
  }
  static void TearDownTestSuite() {
    delete engine_;
    engine_ = nullptr;
    std::filesystem::remove_all(folder_);
  }
  static double logit(const std::string& text) {
    return static_cast<double>(logits_after(*engine_, encode(text)).at(0));
  }

  static inline std::string folder_;
  static inline Engine* engine_ = nullptr;
};

TEST_F(RerankerServer, ScoresPairsOfTexts) {
  const double cat = logit("The little fox A cat");
  const double dog = logit("The little fox A dog");
  const double other = logit("B A dog");
  ASSERT_GT(std::abs(cat - dog), 1e-3) << "the weights tell texts apart";
  const Running running(*engine_);
  for (const char* const path : {"/v1/score", "/score"}) {
    const Json scores = running.json(post(path, R"({"text_1": "The little fox", "text_2": [" A cat", " A dog"]})"));
    EXPECT_NEAR(at(scores, "data.0.score").as_double(), sigmoid(cat), kTolerance);
    EXPECT_NEAR(at(scores, "data.1.score").as_double(), sigmoid(dog), kTolerance);
    EXPECT_EQ(at(scores, "usage.completion_tokens"), Json(0));
  }
  const Json pairs =
      running.json(post("/v1/score", R"({"text_1": ["The little fox", "B"], "text_2": [" A cat", " A dog"]})"));
  EXPECT_NEAR(at(pairs, "data.1.score").as_double(), sigmoid(other), kTolerance);
  const Json raw =
      running.json(post("/v1/score", R"({"text_1": "The little fox", "text_2": " A cat", "use_activation": false})"));
  EXPECT_NEAR(at(raw, "data.0.score").as_double(), cat, kTolerance);
}

TEST_F(RerankerServer, RanksDocuments) {
  const std::vector<std::string> documents = {" A cat", " A dog", " An owl"};
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t i = 0; i < documents.size(); ++i) order.emplace_back(-logit("The little fox" + documents[i]), i);
  std::sort(order.begin(), order.end());
  const Running running(*engine_);
  for (const char* const path : {"/v1/rerank", "/rerank", "/v2/rerank"}) {
    const Json ranked = running.json(post(
        path,
        R"({"model": "demo", "query": "The little fox", "documents": [" A cat", " A dog", {"text": " An owl"}]})"));
    ASSERT_EQ(ranked.find("results")->as_array().size(), 3U);
    for (std::size_t place = 0; place < 3; ++place) {
      const Json& result = ranked.find("results")->as_array()[place];
      EXPECT_EQ(at(result, "index"), Json(order[place].second));
      EXPECT_EQ(at(result, "document.text"), Json(documents[order[place].second]));
      EXPECT_NEAR(at(result, "relevance_score").as_double(), sigmoid(-order[place].first), kTolerance);
    }
  }
  const Json top = running.json(post(
      "/v1/rerank",
      R"({"query": "The little fox", "documents": [" A cat", " A dog", " An owl"], "top_n": 1, "return_documents": false})"));
  ASSERT_EQ(top.find("results")->as_array().size(), 1U);
  EXPECT_EQ(at(top, "results.0.index"), Json(order[0].second));
  EXPECT_EQ(top.find("results")->as_array()[0].find("document"), nullptr);
  // A gateway writes "unknown" if its client named no model.
  EXPECT_EQ(running.ask(post("/v1/rerank", R"({"model": "unknown", "query": "a", "documents": ["b"]})")).status, 200);
  EXPECT_EQ(running.ask(post("/v1/rerank", R"({"model": "gpt", "query": "a", "documents": ["b"]})")).status, 404);
  EXPECT_EQ(running.ask(post("/v1/completions", R"({"model": "demo", "prompt": "a"})")).status, 400);
  EXPECT_EQ(running.ask(post("/v1/embeddings", R"({"model": "demo", "input": "a"})")).status, 400);
  EXPECT_EQ(running.ask(get("/health_generate")).status, 200);
}

TEST_F(RerankerServer, AnswersTeiRequestsInTheirForm) {
  const std::string texts = R"({"query": "The little fox", "texts": [" A cat", " A dog"])";
  const double cat = logit("The little fox A cat");
  const double dog = logit("The little fox A dog");
  const Running running(*engine_);
  const Json plain = running.json(post("/rerank", texts + "}"));
  ASSERT_EQ(plain.as_array().size(), 2U);
  EXPECT_EQ(at(plain, "0.index"), Json(cat >= dog ? 0 : 1));
  EXPECT_NEAR(at(plain, "0.score").as_double(), sigmoid(std::max(cat, dog)), kTolerance);
  EXPECT_EQ(plain.as_array()[0].find("text"), nullptr);
  const Json raw =
      running.json(post("/rerank", texts + R"(, "raw_scores": true, "return_text": true, "truncate": true})"));
  EXPECT_NEAR(at(raw, "0.score").as_double(), std::max(cat, dog), kTolerance);
  EXPECT_EQ(at(raw, "1.text"), Json(cat >= dog ? " A dog" : " A cat"));
  for (const char* const both :
       {R"(, "documents": ["b"]})", R"(, "top_n": 1})", R"(, "raw_scores": true, "use_activation": true})",
        R"(, "truncation_direction": "up"})", R"(, "truncate": true, "truncate_prompt_tokens": 5})"})
    EXPECT_EQ(running.ask(post("/rerank", texts + both)).status, 400) << both;
}

TEST_F(RerankerServer, AnswersGatewaysInSglangsForm) {
  const double cat = logit("The little fox A cat");
  const double dog = logit("The little fox A dog");
  const Running running(*engine_);
  // SGLang's gateway (smg 1.13) writes these fields for a client that gave none of them.
  const std::string by_smg = R"({"model": "unknown", "query": "The little fox", "documents": [" A cat", " A dog"],
                                 "return_documents": true, "user": null, "rid": )";
  for (const char* const id : {"null}", R"("mine"})"}) {
    const Json ranked = running.json(post("/v1/rerank", by_smg + id));
    ASSERT_TRUE(ranked.is_array()) << ranked.dump();
    ASSERT_EQ(ranked.as_array().size(), 2U);
    EXPECT_EQ(at(ranked, "0.index"), Json(cat >= dog ? 0 : 1));
    EXPECT_NEAR(at(ranked, "0.score").as_double(), sigmoid(std::max(cat, dog)), kTolerance);
    EXPECT_EQ(at(ranked, "1.document"), Json(cat >= dog ? " A dog" : " A cat"));
  }
  const Json best = running.json(post("/v1/rerank", by_smg + R"(null, "top_k": 1})"));
  ASSERT_EQ(best.as_array().size(), 1U);
  EXPECT_EQ(at(best, "0.index"), Json(cat >= dog ? 0 : 1));
  EXPECT_EQ(running.ask(post("/v1/rerank", by_smg + R"(null, "top_k": 1, "top_n": 1})")).status, 400);
}

TEST_F(RerankerServer, JoinsPairsByAGivenTemplate) {
  const double by_roles = logit("Q:fox D:cat I:find");
  ServerOptions options;
  options.chat_template =
      "{% for m in messages %}{{ 'Q:' if m.role == 'query' else ' D:' }}{{ m.content }}{% endfor %} I:{{ instruct }}";
  {
    const Running running(*engine_, options);
    const Json scores = running.json(
        post("/v1/score", R"({"text_1": "fox", "text_2": "cat", "instruction": "find", "use_activation": false})"));
    EXPECT_NEAR(at(scores, "data.0.score").as_double(), by_roles, kTolerance);
  }
  options.chat_template = "Q:{{ query }} D:{{ document }} I:find";
  const Running running(*engine_, options);
  const Json scores = running.json(post("/v1/score", R"({"text_1": "fox", "text_2": "cat", "use_activation": false})"));
  EXPECT_NEAR(at(scores, "data.0.score").as_double(), by_roles, kTolerance);
}

class LabelScores : public testing::ServerTest {};

TEST_F(LabelScores, AreTheProbabilitiesOfTokensAfterThePrompt) {
  const auto probabilities = [&](const std::string& text, std::vector<std::size_t> labels, bool of_labels) {
    const std::vector<float> logits = logits_after(engine(), encode(text));
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      if (!of_labels || std::find(labels.begin(), labels.end(), i) != labels.end())
        sum += std::exp(static_cast<double>(logits[i]));
    }
    std::vector<float> made;
    for (const std::size_t label : labels)
      made.push_back(static_cast<float>(std::exp(static_cast<double>(logits[label])) / sum));
    return made;
  };
  const std::vector<float> cat = probabilities("The cat", {300, 7}, false);
  const std::vector<float> dog = probabilities("The dog", {300, 7}, false);
  const std::vector<float> softmax = probabilities("The cat", {300, 7}, true);
  const std::vector<float> swapped = probabilities(" catThe", {300, 7}, false);
  const Running running(engine());
  const Json scores =
      running.json(post("/v1/score", R"({"query": "The", "items": [" cat", " dog"], "label_token_ids": [300, 7]})"));
  EXPECT_EQ(at(scores, "object"), Json("scoring"));
  expect_near(at(scores, "scores.0"), cat);
  expect_near(at(scores, "scores.1"), dog);
  const std::string one = R"("query": "The", "items": " cat", "label_token_ids": [300, 7])";
  expect_near(at(running.json(post("/v1/score", "{" + one + R"(, "apply_softmax": true})")), "scores.0"), softmax);
  expect_near(at(running.json(post("/v1/score", "{" + one + R"(, "item_first": true})")), "scores.0"), swapped);
  const Json refused = running.json(post("/v1/rerank", R"({"query": "a", "documents": ["b"]})"), 400);
  EXPECT_THAT(at(refused, "error.message").as_string(), HasSubstr("label_token_ids"));
}

}  // namespace
}  // namespace tessera
