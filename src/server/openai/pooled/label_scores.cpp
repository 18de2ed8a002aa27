#include "tessera/server/openai/pooled/label_scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/pooled/pooled_fields.h"

namespace tessera {
namespace {

struct LabelStyle {
  std::string model;
  std::vector<TokenId> labels{};
  bool apply_softmax = false;  // true: softmax over the labels only; false: over all tokens
};

// Returns exp(x - greatest) / Σ exp(y - greatest) for each x of `wanted`. The sum is over all y of `all`, and
// `greatest` is the greatest y.
std::vector<double> probabilities(std::span<const double> wanted, std::span<const float> all) {
  const auto greatest = static_cast<double>(*std::max_element(all.begin(), all.end()));
  double sum = 0;
  for (const float x : all) sum += std::exp(static_cast<double>(x) - greatest);
  std::vector<double> made;
  made.reserve(wanted.size());
  for (const double x : wanted) made.push_back(std::exp(x - greatest) / sum);
  return made;
}

class LabelAnswer : public Answer {
 public:
  LabelAnswer(LabelStyle style, std::size_t items) : style_(std::move(style)), scores_(items) {}

  // When a request ends, keeps only its scores. The row of logits is freed at once, because it is large: it has a value
  // for every token of the vocabulary.
  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end == nullptr) return;
    usage_.add(*end);
    std::vector<double> wanted;
    std::vector<float> labels;
    for (const TokenId id : style_.labels) {
      labels.push_back(end->logits[id.index()]);
      wanted.push_back(static_cast<double>(labels.back()));
    }
    scores_[index] = probabilities(wanted, style_.apply_softmax ? labels : end->logits);
  }

  std::string body() override {
    JsonWriter json;
    json.object().key("object").value("scoring").key("model").value(style_.model).key("scores").array();
    for (const std::vector<double>& item : scores_) {
      json.array();
      for (const double score : item) json.value(score);
      json.end_array();
    }
    json.end_array().key("usage");
    write_usage(json, {.prompt_tokens = usage_.prompt_tokens, .cached_tokens = usage_.cached_tokens});
    return json.end_object().take();
  }

 private:
  LabelStyle style_;
  std::vector<std::vector<double>> scores_;  // for each item, the scores of all labels
  PooledUsage usage_;
};

// read_texts() joins the query with each item's text and then encodes the joined text. read_ids() concatenates the
// query's ids and each item's ids.
ApiResult<std::vector<std::vector<TokenId>>> read_texts(const ApiFields& fields, const ServedModel& model,
                                                        bool item_first) {
  const std::string query = fields.find("query")->as_string();
  std::vector<std::vector<TokenId>> prompts;
  const std::vector<std::string> items = TRY(fields.strings("items"));
  if (items.empty()) return fields.wrong("items", "a string or a list of strings, not empty");
  for (const std::string& item : items)
    prompts.push_back(TRY(model.encode(item_first ? item + query : query + item, true, fields.param("items"))));
  return prompts;
}

ApiResult<std::vector<std::vector<TokenId>>> read_ids(const ApiFields& fields, const ServedModel& model,
                                                      bool item_first) {
  constexpr std::string_view kAccepted = "a list of lists of token ids beside a \"query\" of ids, not empty";
  const std::vector<TokenId> query = TRY(fields.token_ids("query", model.vocab_size));
  const Json* items = TRY(fields.array("items"));
  const bool are_lists =
      items != nullptr && !items->as_array().empty() &&
      std::all_of(items->as_array().begin(), items->as_array().end(), [](const Json& item) { return item.is_array(); });
  if (!are_lists) return fields.wrong("items", kAccepted);
  Prompts read = TRY(read_prompts(fields, "items", model, /*add_special_tokens=*/false));
  for (std::vector<TokenId>& item : read.ids)
    item.insert(item_first ? item.end() : item.begin(), query.begin(), query.end());
  return std::move(read.ids);
}

}  // namespace

ApiResult<ApiJob> prepare_label_scores(const ServedModel& model, const ApiFields& fields) {
  TRY(check_request_fields(fields, request_object::kLabelScore, model.allow_unknown_fields));
  if (!model.generates()) {
    return unsupported_field(
        "label_token_ids",
        fmt::format("request: \"label_token_ids\": \"{}\" makes no tokens; accepted: text_1 and text_2", model.name));
  }
  const PooledFields pooled = TRY(read_pooled_fields(fields, model));
  std::vector<TokenId> labels = TRY(fields.token_ids("label_token_ids", model.vocab_size));
  if (labels.empty()) return fields.wrong("label_token_ids", "a list of token ids, not empty");
  LabelStyle style{.model = model.name, .labels = std::move(labels)};
  style.apply_softmax = TRY(fields.boolean_or("apply_softmax", false));
  const bool item_first = TRY(fields.boolean_or("item_first", false));
  const Json* query = fields.find("query");
  if (query == nullptr || !(query->is_string() || query->is_array()))
    return fields.wrong("query", "a string or a list of token ids");
  std::vector<std::vector<TokenId>> prompts =
      TRY(query->is_string() ? read_texts(fields, model, item_first) : read_ids(fields, model, item_first));

  ApiJob job{.id = make_id("score-")};
  FanOut fan_out;
  for (std::vector<TokenId>& prompt : prompts) {
    Request request = TRY(pooled.make_request(std::move(prompt), model, "items"));
    TRY(fan_out.add(1, std::ssize(request.prompt), "items"));
    request.score = true;
    request.score_from = std::ssize(request.prompt) - 1;
    job.requests.push_back(std::move(request));
  }
  job.answer = std::make_unique<LabelAnswer>(std::move(style), job.requests.size());
  return job;
}

}  // namespace tessera
