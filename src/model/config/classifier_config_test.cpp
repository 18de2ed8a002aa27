// Catches: a classifier that is read with another number of labels than its checkpoint has; a classifier that gets a
// language model's head.
#include <string>
#include <utility>
#include <vector>

#include "tessera/model/config/config_test_util.h"
#include "tessera/model/model.h"
#include "tessera/model/test_support.h"
#include "tessera/ops/built_in_ops.h"

namespace tessera {
namespace {

using test::expect_error;

Result<ModelConfig> classifier(const char* changes) { return test::small("Qwen3ForSequenceClassification", changes); }

TEST(ClassifierConfig, CountsTheLabels) {
  EXPECT_EQ(classifier("{}")->num_labels, 2) << "Hugging Face's default";
  EXPECT_EQ(classifier(R"({"num_labels": 3})")->num_labels, 3);
  EXPECT_EQ(classifier(R"({"id2label": {"0": "no"}, "num_labels": 3})")->num_labels, 1);
  for (const auto& [changes, field] :
       {std::pair(R"({"id2label": {}})", "id2label"), std::pair(R"({"id2label": ["a"]})", "id2label"),
        std::pair(R"({"id2label": {"1": "a"}})", "id2label"), std::pair(R"({"id2label": {"0": 1}})", "id2label"),
        std::pair(R"({"num_labels": 0})", "num_labels")})
    expect_error(classifier(changes), StatusCode::kInvalidArgument, {field});
}

TEST(ClassifierConfig, ReadsTheNamesOfTheLabels) {
  EXPECT_EQ(classifier(R"({"id2label": {"1": "dog", "0": "cat"}})")->label_names,
            (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(classifier("{}")->label_names, (std::vector<std::string>{"LABEL_0", "LABEL_1"}));
}

TEST(ClassifierConfig, ReadsHowLogitsBecomeScores) {
  EXPECT_EQ(classifier(R"({"problem_type": null})")->label_scale, LabelScale::kExclusive);
  EXPECT_EQ(classifier(R"({"problem_type": "multi_label_classification"})")->label_scale, LabelScale::kIndependent);
  EXPECT_EQ(classifier(R"({"problem_type": "regression"})")->label_scale, LabelScale::kRaw);
  expect_error(classifier(R"({"problem_type": "other"})"), StatusCode::kInvalidArgument,
               {"problem_type", "regression"});
}

TEST(ClassifierConfig, HasARowOfTheHeadForEachLabel) {
  const ModelConfig config = *classifier(R"({"num_labels": 3, "tie_word_embeddings": true})");
  const Result<ModelGraphs> graphs = build_model(config, {}, built_in_ops(), built_in_families());
  ASSERT_TRUE(graphs.ok()) << graphs.status().message();
  const WeightSpec& head = graphs->weights.back();
  ASSERT_EQ(head.parts.size(), 1U);
  EXPECT_EQ(head.parts[0].tensor, "score.weight") << "tied embeddings are of the language model's head";
  EXPECT_EQ(head.parts[0].shape, (std::vector<std::int64_t>{3, config.hidden_size}));
  EXPECT_EQ(graphs->head.value(graphs->head.outputs[0]).type.shape.back().constant(), 3);
}

}  // namespace
}  // namespace tessera
