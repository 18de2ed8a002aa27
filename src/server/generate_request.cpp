#include "tessera/server/generate_request.h"

#include <fmt/format.h>

#include <cmath>

#include "tessera/server/generate_answer.h"
#include "tessera/server/prompts.h"
#include "tessera/server/request_fields.h"
#include "tessera/server/sampling_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kDefaultTokens = 128;  // as SGLang's

// What stands for the prompts: ids, and where embeddings are given these, ids being zeros then.
struct Inputs {
  Prompts prompts;
  std::vector<std::vector<float>> embeds;  // [prompts]; empty: none
};

// [tokens][hidden size]
ApiResult<std::vector<float>> read_matrix(const Json& rows, std::int64_t hidden_size) {
  const ApiError wrong = invalid_field(
      "input_embeds", fmt::format("request: field \"input_embeds\" is {}; accepted: a list of rows of {} numbers, or a "
                                  "list of such lists",
                                  shown_value(&rows), hidden_size));
  std::vector<float> matrix;
  if (!rows.is_array()) return wrong;
  for (const Json& row : rows.as_array()) {
    if (!row.is_array() || std::ssize(row.as_array()) != hidden_size) return wrong;
    for (const Json& value : row.as_array()) {
      if (!value.is_number()) return wrong;
      const auto number = static_cast<float>(value.as_double());
      if (!std::isfinite(number)) return wrong;
      matrix.push_back(number);
    }
  }
  return matrix;
}

ApiResult<Inputs> read_embeds(const ApiFields& fields, const ServedModel& model) {
  Inputs inputs;
  const Json& value = *fields.find("input_embeds");
  const Json::Array* outer = value.is_array() && !value.as_array().empty() ? &value.as_array() : nullptr;
  const Json* first = outer != nullptr && outer->front().is_array() && !outer->front().as_array().empty()
                          ? &outer->front().as_array().front()
                          : nullptr;
  inputs.prompts.batch = first != nullptr && first->is_array();
  if (inputs.prompts.batch) {
    for (const Json& rows : *outer) inputs.embeds.push_back(TRY(read_matrix(rows, model.hidden_size)));
  } else {
    inputs.embeds.push_back(TRY(read_matrix(value, model.hidden_size)));
  }
  for (const std::vector<float>& matrix : inputs.embeds) {
    inputs.prompts.ids.emplace_back(matrix.size() / static_cast<std::size_t>(model.hidden_size), TokenId(0));
  }
  return inputs;
}

ApiResult<Inputs> read_inputs(const ApiFields& fields, const ServedModel& model) {
  std::vector<std::string_view> given;
  for (const std::string_view key : {"text", "input_ids", "input_embeds"}) {
    if (fields.find(key) != nullptr) given.push_back(key);
  }
  if (given.size() != 1) {
    return invalid_field(
        given.empty() ? "text" : std::string(given[1]),
        fmt::format("the request has {} of \"text\", \"input_ids\" and \"input_embeds\"; accepted: one", given.size()));
  }
  if (given[0] == "input_embeds") return read_embeds(fields, model);
  Inputs inputs;
  inputs.prompts = TRY(read_prompts(fields, given[0], model, /*add_special_tokens=*/true));
  return inputs;
}

// The fields of prompt `i` of a batch: where a field is a list of as many values, its own one.
Json fields_of_prompt(const Json& body, std::size_t i, std::size_t count, bool batch) {
  Json own = Json::object();
  for (const char* key :
       {"sampling_params", "rid", "return_logprob", "logprob_start_len", "top_logprobs_num", "return_hidden_states"}) {
    const Json* value = body.find(key);
    if (value == nullptr) continue;
    const bool listed = batch && value->is_array() && value->as_array().size() == count;
    own.set(key, listed ? value->as_array()[i] : *value);
  }
  return own;
}

struct LogprobFields {
  bool wanted = false;
  bool input = false;  // of the prompt too, from `start` on
};

ApiResult<LogprobFields> read_logprobs(const ApiFields& fields, Request& request) {
  LogprobFields out;
  out.wanted = TRY(fields.boolean_or("return_logprob", false));
  const std::int64_t length = std::ssize(request.prompt);
  const std::int64_t start = TRY(fields.integer("logprob_start_len", -1, length - 1)).value_or(-1);
  const std::int64_t top = TRY(fields.integer("top_logprobs_num", 0, kMaxTopLogprobs)).value_or(0);
  if (!out.wanted) return out;
  out.input = start >= 0;
  request.logprobs.output = static_cast<int>(top);
  if (out.input) {
    request.logprobs.prompt = static_cast<int>(top);
    request.logprobs.prompt_start = start;
  }
  return out;
}

}  // namespace

ApiResult<ApiJob> prepare_generate(const ServedModel& model, std::string_view body) {
  const Json json = TRY(parse_body(body));
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kGenerate, model.allow_unknown_fields));
  Inputs inputs = TRY(read_inputs(fields, model));
  const std::size_t count = inputs.prompts.ids.size();
  GenerateStyle style{.tokenizer = model.tokenizer, .hidden_size = model.hidden_size};
  style.stream = TRY(fields.boolean_or("stream", false));
  style.text_in_logprobs = TRY(fields.boolean_or("return_text_in_logprobs", false));
  const std::int64_t priority = TRY(fields.integer("priority", INT32_MIN, INT32_MAX)).value_or(0);
  const bool graph_info = TRY(fields.boolean_or("return_graph_info", false));
  const double timeout_s = TRY(fields.number("timeout_s", 0, 1e9)).value_or(0);

  const std::string param =
      inputs.embeds.empty() ? (fields.find("text") != nullptr ? "text" : "input_ids") : "input_embeds";
  ApiJob job{.id = make_id(""), .stream = style.stream};
  style.list = inputs.prompts.batch;
  for (std::size_t i = 0; i < count; ++i) {
    const Json own_json = fields_of_prompt(json, i, count, inputs.prompts.batch);
    const ApiFields own(own_json);
    const Json* given = TRY(own.object("sampling_params"));
    const Json sampling = given != nullptr ? *given : Json::object();
    const ApiFields sampling_fields(sampling, "sampling_params.");
    TRY(check_request_fields(sampling_fields, request_object::kSamplingParams, model.allow_unknown_fields));
    const OutputFields output = TRY(read_output_fields(sampling_fields, model));
    if (i == 0) TRY(check_fan_out(inputs.prompts.ids, output.n, param));
    if (output.n > 1 && !inputs.embeds.empty()) {
      return unsupported_field("sampling_params.n", "\"n\" is more than 1; accepted with \"input_embeds\": 1");
    }
    Request request{.prompt = std::move(inputs.prompts.ids[i]),
                    .sampling = output.sampling,
                    .stop = output.stop,
                    .return_graph_info = graph_info,
                    .skip_special_tokens = output.skip_special_tokens,
                    .priority = priority,
                    .timeout_s = timeout_s};
    TRY(model.set_length(request, output.max_new_tokens, kDefaultTokens, param));
    if (!inputs.embeds.empty()) request.input_embeds = std::move(inputs.embeds[i]);
    const LogprobFields logprobs = TRY(read_logprobs(own, request));
    request.return_hidden_states = TRY(own.boolean_or("return_hidden_states", false));
    request.grammar = TRY(compile_grammar(output.grammar, output, model));

    std::string id = TRY(own.string("rid")).value_or(count == 1 ? job.id : make_id(""));
    style.list = style.list || output.n > 1;
    for (int choice = 0; choice < output.n; ++choice) {
      style.choices.push_back({.id = choice == 0 ? id : make_id(""),
                               .last_prompt_id = request.prompt.back(),
                               .prompt_tokens = std::ssize(request.prompt),
                               .logprobs = logprobs.wanted,
                               .input_logprobs = logprobs.input,
                               .top_logprobs = request.logprobs.output.value_or(0) > 0,
                               .hidden_states = request.return_hidden_states,
                               .graph_info = graph_info});
    }
    append_choices(output, request, job.requests);
  }
  job.answer = make_generate_answer(std::move(style));
  return job;
}

}  // namespace tessera
