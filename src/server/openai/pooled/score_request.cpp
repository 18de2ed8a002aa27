#include "tessera/server/openai/pooled/score_request.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/server/fields/api_fields.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/fields/usage.h"
#include "tessera/server/openai/pooled/label_scores.h"
#include "tessera/server/openai/pooled/text_pairs.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

class ScoreAnswer : public Answer {
 public:
  ScoreAnswer(std::string id, std::string model, PairScores scores)
      : id_(std::move(id)), model_(std::move(model)), scores_(std::move(scores)) {}

  void on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) override {
    if (end != nullptr) scores_.take(index, *end);
  }

  std::string body() override {
    JsonWriter json;
    json.object().key("id").value(id_).key("object").value("list").key("created").value(unix_time());
    json.key("model").value(model_).key("data").array();
    for (std::size_t i = 0; i < scores_.size(); ++i)
      json.object()
          .key("index")
          .value(i)
          .key("object")
          .value("score")
          .key("score")
          .value(scores_.score(i))
          .end_object();
    json.end_array().key("usage");
    write_usage(json, {.prompt_tokens = scores_.usage().prompt_tokens, .cached_tokens = scores_.usage().cached_tokens});
    return json.end_object().take();
  }

 private:
  std::string id_;
  std::string model_;
  PairScores scores_;
};

// Reads the texts on one side of the pairs. `names` are vLLM's names for the field with these texts. A request must
// have exactly one of these fields. Errors name the field that the request has, or the first of `names` if it has none.
ApiResult<PairSide> read_side(const ApiFields& fields, std::initializer_list<std::string_view> names) {
  std::string_view key;
  for (const std::string_view name : names) {
    if (fields.find(name) == nullptr) continue;
    if (!key.empty()) return fields.contradiction(name, key);
    key = name;
  }
  if (key.empty()) key = *names.begin();
  PairSide side{.texts = TRY(fields.strings(key)), .param = fields.param(key)};
  if (side.texts.empty()) return fields.wrong(key, "a string or a list of strings, not empty");
  return side;
}

ApiResult<ApiJob> prepare_pairs(const ServedModel& model, const ApiFields& fields) {
  TRY(check_request_fields(fields, request_object::kScore, model.allow_unknown_fields));
  const PooledFields pooled = TRY(read_pooled_fields(fields, model));
  const PairSide firsts = TRY(read_side(fields, {"text_1", "queries", "data_1"}));
  const PairSide seconds = TRY(read_side(fields, {"text_2", "documents", "items", "data_2"}));
  ApiJob job{.id = TRY(read_answer_id(fields, "score-"))};
  PairScores scores = TRY(PairScores::create(model, pooled, firsts, seconds, TRY(read_instruction(fields))));
  job.requests = scores.take_requests();
  job.answer = std::make_unique<ScoreAnswer>(job.id, model.name, std::move(scores));
  return job;
}

}  // namespace

ApiResult<ApiJob> prepare_score(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  TRY(model.check_routed_name(json));
  const ApiFields fields(json);
  for (const std::string_view key : {"query", "label_token_ids"}) {
    if (fields.find(key) == nullptr) continue;
    for (const std::string_view other : {"text_1", "text_2"}) {
      if (fields.find(other) == nullptr) continue;
      return unsupported_field(
          fields.param(key),
          fmt::format("request: \"{}\" is given beside \"{}\"; accepted: text_1 and text_2 for the "
                      "scores of pairs, or query, items and label_token_ids for the probabilities of "
                      "tokens",
                      fields.param(key), other));
    }
    return prepare_label_scores(model, fields);
  }
  return prepare_pairs(model, fields);
}

}  // namespace tessera
