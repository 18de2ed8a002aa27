// Catches: a label's score that does not follow from the engine's logits, that belongs to another text or label, or
// that is not scaled as the model's config says; and a route that answers although the model has no labels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "tessera/server/openai/answers_test_util.h"
#include "tessera/server/work/classifier_test_util.h"

namespace tessera {
namespace {

using test::at;
using test::encode;
using testing::get;
using ::testing::HasSubstr;
using testing::post;
using testing::Running;

constexpr double kProbabilityTolerance = 1e-5;
const std::vector<std::string> kNames = {"cat", "dog", "owl"};

// A classifier with the dimensions of the demo model and random weights.
class Classifier {
  std::string folder_;

 public:
  std::unique_ptr<Engine> engine;

  explicit Classifier(const std::string& problem_type,
                      const std::string& labels = R"({"0": "cat", "1": "dog", "2": "owl"})")
      : folder_(::testing::TempDir() + "/classify_" + problem_type),
        engine(*testing::make_classifier(folder_, labels, problem_type)) {}
  ~Classifier() { std::filesystem::remove_all(folder_); }

  std::vector<double> logits(const std::string& text) {
    const std::vector<TokenId> prompt = encode(text);
    const Request request{.prompt = prompt, .score = true, .score_from = std::ssize(prompt) - 1};
    const std::vector<float> found = (*engine->run({&request, 1}))[0].logits;
    return {found.begin(), found.end()};
  }
};

void expect_scores(const Json& result, const std::vector<double>& want) {
  const auto best = std::ranges::max_element(want) - want.begin();
  EXPECT_EQ(at(result, "label"), Json(kNames[static_cast<std::size_t>(best)]));
  EXPECT_EQ(at(result, "num_classes"), Json(3));
  ASSERT_EQ(result.find("probs")->as_array().size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(result.find("probs")->as_array()[i].as_double(), want[i], kProbabilityTolerance) << i;
}

TEST(ClassifyRoute, ScoresTheLabelsOfEveryText) {
  Classifier model("single_label_classification");
  const std::vector<std::string> texts = {"The little fox", " A dog"};
  std::vector<std::vector<double>> logits;
  for (const std::string& text : texts) logits.push_back(model.logits(text));
  ASSERT_GT(std::abs(logits[0][0] - logits[1][0]), 1e-3) << "the weights tell texts apart";
  const Running running(*model.engine);
  for (const char* const path : {"/v1/classify", "/classify"}) {
    const Json answer = running.json(post(path, R"({"model": "demo", "input": ["The little fox", " A dog"]})"));
    EXPECT_EQ(at(answer, "object"), Json("list"));
    EXPECT_THAT(at(answer, "id").as_string(), HasSubstr("classify-"));
    EXPECT_EQ(at(answer, "usage.prompt_tokens"),
              Json(static_cast<std::int64_t>(encode(texts[0]).size() + encode(texts[1]).size())));
    ASSERT_EQ(answer.find("data")->as_array().size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
      std::vector<double> want = logits[i];
      for (double& x : want) x = std::exp(x);
      const double sum = std::accumulate(want.begin(), want.end(), 0.0);
      for (double& x : want) x /= sum;
      EXPECT_EQ(at(answer.find("data")->as_array()[i], "index"), Json(static_cast<std::int64_t>(i)));
      expect_scores(answer.find("data")->as_array()[i], want);
    }
  }
  expect_scores(
      at(running.json(post("/v1/classify", R"({"input": "The little fox", "use_activation": false})")), "data.0"),
      logits[0]);
}

TEST(ClassifyRoute, FollowsTheConfigsProblemType) {
  for (const char* const type : {"multi_label_classification", "regression"}) {
    Classifier model(type);
    std::vector<double> want = model.logits("The little fox");
    if (type == std::string("multi_label_classification"))
      for (double& x : want) x = 1 / (1 + std::exp(-x));
    const Running running(*model.engine);
    expect_scores(at(running.json(post("/v1/classify", R"({"input": "The little fox"})")), "data.0"), want);
  }
}

// A regression model returns its logit as the score of a text, and also as the score of a pair.
TEST(ClassifyRoute, KeepsARegressionsLogits) {
  Classifier model("regression", R"({"0": "cat"})");
  const double logit = model.logits("The little fox").at(0);
  const Running running(*model.engine);
  const Json one = running.json(post("/v1/classify", R"({"input": "The little fox"})"));
  EXPECT_NEAR(at(one, "data.0.probs.0").as_double(), logit, kProbabilityTolerance);
  const Json pair = running.json(post("/v1/score", R"({"text_1": "The little", "text_2": " fox"})"));
  EXPECT_NEAR(at(pair, "data.0.score").as_double(), logit, kProbabilityTolerance);
}

TEST(ClassifyRoute, ScoresASingleLabelByItsSigmoid) {
  Classifier model("single_label_classification", R"({"0": "cat"})");
  const double logit = model.logits("The little fox").at(0);
  const Running running(*model.engine);
  const Json one = running.json(post("/v1/classify", R"({"input": "The little fox"})"));
  EXPECT_EQ(at(one, "data.0.label"), Json("cat"));
  EXPECT_NEAR(at(one, "data.0.probs.0").as_double(), 1 / (1 + std::exp(-logit)), kProbabilityTolerance);
}

TEST(ClassifyRoute, RefusesOtherModelsAndWrongFields) {
  Classifier model("single_label_classification");
  const Running running(*model.engine);
  EXPECT_EQ(running.ask(post("/v1/classify", R"({"model": "gpt", "input": "a"})")).status, 404);
  for (const char* const body : {R"({})", R"({"input": []})", R"({"input": ""})", R"({"input": "a", "labels": 2})"})
    EXPECT_EQ(running.ask(post("/v1/classify", body)).status, 400) << body;
  const Json refused = running.json(post("/v1/rerank", R"({"query": "a", "documents": ["b"]})"), 400);
  EXPECT_THAT(at(refused, "error.message").as_string(), HasSubstr("/v1/classify"));
  const std::unique_ptr<Engine> text = testing::make_engine();
  const Running generates(*text);
  const Json none = generates.json(post("/v1/classify", R"({"input": "a"})"), 400);
  EXPECT_THAT(at(none, "error.message").as_string(), HasSubstr("ForSequenceClassification"));
}

}  // namespace
}  // namespace tessera
