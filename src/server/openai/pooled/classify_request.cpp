#include "tessera/server/openai/pooled/classify_request.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/pooled/list_answer.h"
#include "tessera/server/openai/pooled/pooled_fields.h"
#include "tessera/server/openai/pooled/sigmoid.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

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

class ClassifyAnswer : public ListAnswer {
 public:
  ClassifyAnswer(const std::string& id, const ServedModel& model, LabelScale scale, std::size_t inputs)
      : ListAnswer(id, model.name, inputs), label_names_(model.label_names), scale_(scale) {}

 private:
  std::vector<float>& result_of(Completion& end) const override { return end.logits; }
  void write_entry(JsonWriter& json, const std::vector<float>& logits) const override {
    const std::vector<double> scores = scores_of(logits, scale_);
    const auto best = std::ranges::max_element(scores) - scores.begin();
    json.key("label").value(label_names_[static_cast<std::size_t>(best)]).key("probs").array();
    for (const double score : scores) json.value(score);
    json.end_array().key("num_classes").value(scores.size());
  }

  std::vector<std::string> label_names_;
  LabelScale scale_;
};

}  // namespace

ApiResult<ApiJob> prepare_classify(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_routed_name(json));
  TRY(model.check_classifies());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kClassify, model.allow_unknown_fields));
  const PooledFields pooled = TRY(read_pooled_fields(fields, model));
  const LabelScale scale = pooled.use_activation.value_or(true) ? model.label_scale : LabelScale::kRaw;
  ApiJob job{.id = TRY(read_answer_id(fields, "classify-"))};
  job.requests = TRY(read_inputs(fields, pooled, model));
  for (Request& request : job.requests) {
    request.score = true;
    request.score_from = std::ssize(request.prompt) - 1;
  }
  job.answer = std::make_unique<ClassifyAnswer>(job.id, model, scale, job.requests.size());
  return job;
}

}  // namespace tessera
