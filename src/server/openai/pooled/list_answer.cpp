#include "tessera/server/openai/pooled/list_answer.h"

#include <utility>

#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/usage.h"

namespace tessera {

ListAnswer::ListAnswer(std::string id, std::string model, std::size_t inputs)
    : id_(std::move(id)), model_(std::move(model)), results_(inputs) {}

void ListAnswer::on_event(std::size_t index, const RequestEvent&, Completion* end, std::string&) {
  if (end == nullptr) return;
  usage_.add(*end);
  results_[index] = std::move(result_of(*end));
}

Usage ListAnswer::usage() const {
  return {.prompt_tokens = usage_.prompt_tokens, .cached_tokens = usage_.cached_tokens};
}

JsonParts ListAnswer::parts() {
  JsonParts parts;
  parts.once([this](JsonWriter& json) {
    json.object().key("id").value(id_).key("object").value("list").key("created").value(unix_time());
    json.key("model").value(model_).key("data").array();
  });
  parts.each(results_.size(), [this](JsonWriter& json, std::size_t i) {
    json.object();
    begin_entry(json);
    json.key("index").value(i);
    write_entry(json, results_[i]);
    json.end_object();
  });
  return parts.once([this](JsonWriter& json) {
    json.end_array().key("usage");
    write_usage(json, usage());
    json.end_object();
  });
}

ApiResult<std::vector<Request>> read_inputs(const ApiFields& fields, const PooledFields& pooled,
                                            const ServedModel& model) {
  Prompts prompts = TRY(read_prompts(fields, "input", model, pooled.add_special_tokens));
  std::vector<Request> requests;
  FanOut fan_out;
  for (std::vector<TokenId>& prompt : prompts.ids) {
    Request request = TRY(pooled.make_request(std::move(prompt), model, "input"));
    TRY(fan_out.add(1, std::ssize(request.prompt), "input"));
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace tessera
