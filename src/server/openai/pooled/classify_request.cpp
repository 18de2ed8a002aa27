#include "tessera/server/openai/pooled/classify_request.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/pooled_fields.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/prompts.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/openai/usage.h"

namespace tessera {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Returns the scores of a text's labels.
std::vector<double> scores_of(std::span<const float> logits, LabelScale scale) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (scale == LabelScale::kRaw) return scores;
  if (scale == LabelScale::kIndependent || scores.size() == 1) {
    for (double& x : scores) x = sigmoid(x);
    return scores;
  }
  const double most = *std::ranges::max_element(scores);
  double sum = 0;
  for (double& x : scores) sum += x = std::exp(x - most);
  for (double& x : scores) x /= sum;
  return scores;
}

struct ClassifyStyle {
  std::string id;
  std::string model;
  std::vector<std::string> label_names;
  LabelScale scale = LabelScale::kExclusive;
};

class ClassifyAnswer : public Answer {
 public:
  ClassifyAnswer(ClassifyStyle style, std::size_t inputs) : style_(std::move(style)), logits_(inputs) {}

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end == nullptr) return;
    usage_.add(*end);
    logits_[index] = std::move(end->logits);
  }

  std::string body() override { return parts().all(); }
  Usage usage() const override {
    return {.prompt_tokens = usage_.prompt_tokens, .cached_tokens = usage_.cached_tokens};
  }
  std::optional<JsonParts> large_body() override { return parts(); }

 private:
  JsonParts parts() {
    JsonParts parts;
    parts.once([this](JsonWriter& json) {
      json.object().key("id").value(style_.id).key("object").value("list").key("created").value(unix_time());
      json.key("model").value(style_.model).key("data").array();
    });
    parts.each(logits_.size(), [this](JsonWriter& json, std::size_t i) {
      const std::vector<double> scores = scores_of(logits_[i], style_.scale);
      const auto best = std::ranges::max_element(scores) - scores.begin();
      json.object().key("index").value(i).key("label").value(style_.label_names[static_cast<std::size_t>(best)]);
      json.key("probs").array();
      for (const double score : scores) json.value(score);
      json.end_array().key("num_classes").value(scores.size()).end_object();
    });
    return parts.once([this](JsonWriter& json) {
      json.end_array().key("usage");
      write_usage(json, usage());
      json.end_object();
    });
  }

  ClassifyStyle style_;
  std::vector<std::vector<float>> logits_;  // [inputs, labels]
  PooledUsage usage_;
};

}  // namespace

ApiResult<ApiJob> prepare_classify(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_routed_name(json));
  TRY(model.check_classifies());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kClassify, model.allow_unknown_fields));
  const PooledFields pooled = TRY(read_pooled_fields(fields, model));
  ClassifyStyle style{.id = TRY(read_answer_id(fields, "classify-")),
                      .model = model.name,
                      .label_names = model.label_names,
                      .scale = pooled.use_activation.value_or(true) ? model.label_scale : LabelScale::kRaw};
  Prompts prompts = TRY(read_prompts(fields, "input", model, pooled.add_special_tokens));
  ApiJob job{.id = style.id};
  FanOut fan_out;
  for (std::vector<TokenId>& prompt : prompts.ids) {
    Request request = TRY(pooled.make_request(std::move(prompt), model, "input"));
    TRY(fan_out.add(1, std::ssize(request.prompt), "input"));
    request.score = true;
    request.score_from = std::ssize(request.prompt) - 1;
    job.requests.push_back(std::move(request));
  }
  job.answer = std::make_unique<ClassifyAnswer>(std::move(style), job.requests.size());
  return job;
}

}  // namespace tessera
