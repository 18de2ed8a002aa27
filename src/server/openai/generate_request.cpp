#include "tessera/server/openai/generate_request.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <span>

#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/images/image_data.h"
#include "tessera/server/images/prompt_images.h"
#include "tessera/server/openai/generate_answer.h"
#include "tessera/server/openai/sampling_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kDefaultGeneratedTokens = 128;  // SGLang's default

// The prompts of a request. If embeddings are given, the ids are zeros.
struct Inputs {
  Prompts prompts;
  std::vector<std::vector<float>> embeds;  // one matrix for each prompt; empty: no embeddings were given
};

// Reads a matrix [tokens][hidden size] of numbers.
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

// Replaces each image's placeholder in `prompt` by the image's tokens.
ApiResult<std::vector<PromptImage>> add_images(const ServedModel& model, std::span<const GivenImage> given,
                                               std::vector<TokenId>& prompt) {
  std::vector<PromptImage> placed;
  const PreparedImages images = TRY(prepare_images(*model.images, given, model.context_length));
  const Status status = place_images(*model.images, images, prompt, placed);
  if (!status.ok()) return invalid_field("image_data", status.message());
  return placed;
}

// Returns the value that a field has for prompt `i`. This is element i if the field is a list of `count` values, and
// otherwise the whole value of the field.
const Json* own_value(const Json& body, std::string_view key, std::size_t i, std::size_t count) {
  const Json* value = body.find(key);
  const bool listed = value != nullptr && value->is_array() && value->as_array().size() == count;
  return listed ? &value->as_array()[i] : value;
}
Json own_fields(const Json& body, std::size_t i, std::size_t count) {
  Json own = Json::object();
  for (const char* key :
       {"rid", "return_logprob", "logprob_start_len", "top_logprobs_num", "return_hidden_states", "lora_path"}) {
    if (const Json* value = own_value(body, key, i, count)) own.set(key, *value);
  }
  return own;
}

// The sampling_params of one request's prompts. They are read only once if all prompts share them.
class OutputsOfPrompts {
 public:
  // Borrows both arguments.
  OutputsOfPrompts(const ServedModel& model, const Json& body) : model_(model), body_(body) {}

  // Returns the parameters of prompt i. `count`: as for own_value(). The pointer is valid until the next call.
  ApiResult<const OutputFields*> of(std::size_t i, std::size_t count) {
    const Json* given = own_value(body_, "sampling_params", i, count);
    if (read_ && given == of_) return &output_;
    const Json none = Json::object();
    if (given != nullptr && !given->is_null() && !given->is_object()) {
      return ApiFields(body_).wrong("sampling_params", "an object, or a list of one for each prompt");
    }
    const bool absent = given == nullptr || given->is_null();
    const ApiFields fields(absent ? none : *given, "sampling_params.");
    TRY(check_request_fields(fields, request_object::kSamplingParams, model_.allow_unknown_fields));
    output_ = TRY(read_output_fields(fields, model_));
    of_ = given;
    read_ = true;
    return &output_;
  }

 private:
  const ServedModel& model_;
  const Json& body_;
  const Json* of_ = nullptr;
  bool read_ = false;
  OutputFields output_;
};

// Compiles the grammars of one request's prompts. The grammars share the time limit of one HTTP request.
class Grammars {
 public:
  explicit Grammars(const ServedModel& model) : model_(model) {}

  ApiResult<std::shared_ptr<const Grammar>> of(const OutputFields& output) {
    if (output.grammar && spent_ > model_.grammar_seconds) {
      return invalid_field(output.grammar->param,
                           fmt::format("the grammars of this request take longer than {} s to compile; send its "
                                       "prompts in several requests",
                                       model_.grammar_seconds));
    }
    const double begin = thread_seconds();
    std::shared_ptr<const Grammar> grammar = TRY(compile_grammar(output.grammar, output, model_));
    spent_ += thread_seconds() - begin;
    return grammar;
  }

 private:
  static double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  const ServedModel& model_;
  double spent_ = 0;
};

struct LogprobFields {
  bool wanted = false;
  bool input = false;  // log-probabilities also for the prompt's tokens, from logprob_start_len on
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
  const std::string named = TRY(model.named_adapter(json, &ServedModel::check_routed_name));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kGenerate, model.allow_unknown_fields));
  Inputs inputs = TRY(read_inputs(fields, model));
  const std::vector<std::vector<GivenImage>> images = TRY(read_image_data(fields, model, inputs.prompts));
  const std::size_t count = inputs.prompts.ids.size();
  GenerateStyle style{.tokenizer = model.tokenizer, .hidden_size = model.hidden_size};
  style.stream = TRY(fields.boolean_or("stream", false));
  style.stream_interval = model.stream_interval;
  style.text_in_logprobs = TRY(fields.boolean_or("return_text_in_logprobs", false));
  const std::int64_t priority = TRY(fields.integer("priority", -INT32_MAX, INT32_MAX)).value_or(0);
  const bool graph_info = TRY(fields.boolean_or("return_graph_info", false));
  const double timeout_s = TRY(fields.number("timeout_s", 0, 1e9)).value_or(0);
  const RetentionHint retention = TRY(read_retention(fields));

  const std::string param =
      inputs.embeds.empty() ? (fields.find("text") != nullptr ? "text" : "input_ids") : "input_embeds";
  ApiJob job{.id = make_id(""), .stream = style.stream};
  style.list = inputs.prompts.batch;
  // In a batch, a field may be a list with one element for each prompt. Each prompt then has its own value. Without a
  // batch, `listed` is a length that no list has, so the field itself is the value.
  const std::size_t listed = inputs.prompts.batch ? count : std::numeric_limits<std::size_t>::max();
  OutputsOfPrompts outputs(model, json);
  Grammars grammars(model);
  FanOut fan_out;
  for (std::size_t i = 0; i < count; ++i) {
    const Json own_json = own_fields(json, i, listed);
    const ApiFields own(own_json);
    const OutputFields& output = *TRY(outputs.of(i, listed));
    std::vector<PromptImage> placed;
    if (!images[i].empty()) placed = TRY(add_images(model, images[i], inputs.prompts.ids[i]));
    TRY(fan_out.add(output.n, std::ssize(inputs.prompts.ids[i]) + ids_of_parameters(output), param));
    if (output.n > 1 && !inputs.embeds.empty()) {
      return unsupported_field("sampling_params.n", "\"n\" is more than 1; accepted with \"input_embeds\": 1");
    }
    Request request{.prompt = std::move(inputs.prompts.ids[i]),
                    .images = std::move(placed),
                    .sampling = output.sampling,
                    .stop = output.stop,
                    .return_graph_info = graph_info,
                    .skip_special_tokens = output.skip_special_tokens,
                    .priority = priority,
                    .timeout_s = timeout_s,
                    .retention = retention};
    request.adapter = TRY(model.adapter_by_path(own, named));
    TRY(model.set_length(request, output.max_new_tokens, kDefaultGeneratedTokens, param));
    if (!inputs.embeds.empty()) request.input_embeds = std::move(inputs.embeds[i]);
    const LogprobFields logprobs = TRY(read_logprobs(own, request));
    request.return_hidden_states = TRY(own.boolean_or("return_hidden_states", false));
    request.grammar = TRY(grammars.of(output));

    std::string id = count == 1 ? job.id : make_id("");
    if (own.find("rid") != nullptr) id = TRY(read_answer_id(own, ""));
    style.list = style.list || output.n > 1;
    for (int choice = 0; choice < output.n; ++choice) {
      style.choices.push_back({.id = choice == 0 ? id : make_id(""),
                               .last_prompt_id = request.prompt.back(),
                               .prompt_tokens = std::ssize(request.prompt),
                               .image_tokens = image_tokens(request.images),
                               .logprobs = logprobs.wanted,
                               .input_logprobs = logprobs.input,
                               .top_logprobs = request.logprobs.output.value_or(0) > 0,
                               .hidden_states = request.return_hidden_states,
                               .graph_info = graph_info});
      job.request_ids.push_back(id);
    }
    append_choices(output, request, job.requests);
  }
  job.answer = make_generate_answer(std::move(style));
  return job;
}

}  // namespace tessera
