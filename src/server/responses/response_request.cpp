#include "tessera/server/responses/response_request.h"

#include <limits>
#include <memory>
#include <utility>

#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/prompts.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/openai/chat_text_style.h"
#include "tessera/server/openai/reasoning_field.h"
#include "tessera/server/openai/sampling_fields.h"
#include "tessera/server/responses/response_head.h"
#include "tessera/server/responses/response_include.h"
#include "tessera/server/responses/response_items.h"
#include "tessera/server/responses/response_prompt.h"

namespace tessera {
namespace {

// Reads text.format. Ignores "verbosity", which has no effect.
ApiResult<std::optional<OutputGrammar>> read_text_format(const ApiFields& fields) {
  std::optional<OutputGrammar> none;
  const Json* text = TRY(fields.object("text"));
  const Json* format = text != nullptr ? TRY(ApiFields(*text, "text.").object("format")) : nullptr;
  if (format == nullptr) return none;
  const ApiFields inner(*format, "text.format.");
  const std::string type = TRY(inner.string("type")).value_or("");
  if (type == "text") return none;
  std::optional<OutputGrammar> grammar(std::in_place);
  grammar->param = "text.format";
  if (type == "json_object") {
    grammar->spec.kind = GrammarSpec::Kind::kJsonObject;
    return grammar;
  }
  if (type != "json_schema") return inner.wrong("type", R"("text", "json_object" or "json_schema")");
  const Json* schema = inner.find("schema");
  if (schema == nullptr || (!schema->is_object() && !schema->is_bool())) return inner.wrong("schema", "a JSON schema");
  if (TRY(inner.string("name")).value_or("").empty())
    return inner.wrong("name", "the schema's name, which is required");
  grammar->spec = {.kind = GrammarSpec::Kind::kJsonSchema, .text = schema->dump()};
  grammar->param = "text.format.schema";
  return grammar;
}

// The parts that the answer shows besides its text.
struct Shown {
  ItemStyle items{};
  std::optional<int> logprobs{};
};

ApiResult<Shown> read_shown(const ApiFields& fields) {
  Shown shown;
  TRY(fields.array("include"));  // unlike strings(), it refuses a string without a list
  const std::vector<std::string> include = TRY(fields.strings("include"));
  TRY(check_included(include, "request: field"));
  for (const std::string& what : include) {
    if (what == "reasoning.encrypted_content") shown.items.encoded = true;
    if (what == "message.output_text.logprobs") shown.logprobs = 0;
  }
  const std::int64_t top = TRY(fields.integer("top_logprobs", 0, kMaxTopLogprobs)).value_or(0);
  if (top > 0) shown.logprobs = static_cast<int>(top);
  shown.items.summary = TRY(wants_reasoning_summary(fields));
  return shown;
}

// Says whether the response is stored, and whether it continues after its client has left.
struct Kept {
  bool store = true;
  bool background = false;
};

ApiResult<Kept> read_kept(const ApiFields& fields, const ResponseStore& store) {
  constexpr std::string_view kNoStore = "false: this server stores no responses (--max-stored-responses 0)";
  const std::optional<bool> asked = TRY(fields.boolean("store"));
  const bool background = TRY(fields.boolean_or("background", false));
  if (asked == true && !store.enabled()) return fields.unsupported("store", kNoStore);
  if (background && !store.enabled()) return fields.unsupported("background", kNoStore);
  if (background && asked == false) return fields.wrong("background", "false where \"store\" is false");
  return Kept{.store = asked.value_or(true) && store.enabled(), .background = background};
}

ApiResult<std::optional<OutputGrammar>> read_grammar(const ApiFields& fields, const ToolFields& tools) {
  std::optional<OutputGrammar> format = TRY(read_text_format(fields));
  std::optional<OutputGrammar> calls = TRY(tool_grammar(tools));
  if (calls && format)
    return unsupported_field(
        format->param, "\"tool_choice\" constrains the output already; accepted: \"tool_choice\" \"auto\" or \"none\"");
  return calls ? calls : format;
}

ApiStatus check_fields(const Json& json, const ServedModel& model) {
  TRY(model.named_adapter(json, &ServedModel::check_named));
  TRY(model.check_generates());
  const ApiFields fields(json);
  TRY(check_request_fields(fields, request_object::kResponses, model.allow_unknown_fields));
  TRY(check_attached(fields, "client_metadata"));
  return check_metadata(fields);
}

}  // namespace

ApiResult<ResponseJob> prepare_response(const ServedModel& model, std::string_view body, ResponseStore& store,
                                        const std::string& owner) {
  const Json json = TRY(parse_body(body));
  TRY(check_fields(json, model));
  const ApiFields fields(json);
  std::string adapter = model.adapter_of(TRY(fields.string("model")).value_or(""));
  const OutputFields output = TRY(read_output_fields(fields, model));
  const std::optional<std::int64_t> asked =
      TRY(fields.integer("max_output_tokens", 1, std::numeric_limits<std::int32_t>::max()));
  ResponseTools tools = TRY(read_response_tools(fields));
  const std::optional<OutputGrammar> grammar = TRY(read_grammar(fields, tools.fields));
  std::string note = withdraw_generic_tools(model, grammar.has_value(), tools.fields);
  if (const std::string skipped = skipped_note(tools); !skipped.empty()) note += (note.empty() ? "" : "; ") + skipped;
  const Kept kept = TRY(read_kept(fields, store));
  ResponsePrompt prompt = TRY(read_response_prompt(
      fields, model, tools.fields,
      {.store = store, .owner = owner, .keep = kept.store ? kept_items : nullptr, .asked = asked}));
  const Shown shown = TRY(read_shown(fields));

  ResponseStyle style{.id = make_id("resp_"), .head = {}};
  style.head = make_response_head(fields, {.id = style.id,
                                           .model = adapter.empty() ? model.name : adapter,
                                           .temperature = output.sampling.temperature,
                                           .top_p = output.sampling.top_p,
                                           .presence_penalty = output.sampling.presence_penalty,
                                           .frequency_penalty = output.sampling.frequency_penalty,
                                           .parallel = tools.fields.parallel,
                                           .store = kept.store,
                                           .background = kept.background});
  style.text = TRY(text_style_of(model, tools.fields, prompt.prompt, grammar.has_value(), /*separate=*/true));
  style.tools = std::move(tools.list);
  style.items = shown.items;
  style.stream = TRY(fields.boolean_or("stream", false));
  style.logprobs = shown.logprobs.has_value();
  style.interval = model.stream_interval;
  style.tokenizer = model.tokenizer;
  if (kept.store) {
    style.keeping = {.store = &store,
                     .owner = owner,
                     .input = std::move(prompt.kept_input),
                     .before = std::move(prompt.before),
                     .background = kept.background};
  }

  Request request{.prompt = std::move(prompt.prompt.ids),
                  .images = std::move(prompt.prompt.images),
                  .sampling = output.sampling,
                  .stop = output.stop,
                  .adapter = std::move(adapter),
                  .skip_special_tokens = output.skip_special_tokens,
                  .priority = output.priority,
                  .timeout_s = output.timeout_s,
                  .retention = output.retention,
                  .branch_tokens = std::move(prompt.prompt.branch_tokens)};
  request.logprobs.output = shown.logprobs;
  TRY(model.set_length(request, asked, model.context_length, "input"));
  TRY(FanOut().add(1, std::ssize(request.prompt) + ids_of_parameters(output), "input"));
  request.grammar = TRY(compile_grammar(grammar, output, model));
  if (needs_special_tokens(style.text)) request.skip_special_tokens = false;
  style.prompt_tokens = std::ssize(request.prompt);

  ResponseJob out{.job = {.id = style.id, .stream = style.stream, .note = std::move(note)},
                  .background = kept.background};
  append_choices(output, request, out.job.requests);
  auto answer = std::make_unique<ResponseAnswer>(std::move(style));
  out.answer = answer.get();
  out.job.answer = std::move(answer);
  // Checks, before the engine gets the request, whether a plugin format failed to begin its parser.
  if (const Status failure = out.answer->failure(); !failure.ok()) return api_error(failure);
  return out;
}

ApiResult<std::string> response_tokens_body(const ServedModel& model, std::string_view body, ResponseStore& store,
                                            const std::string& owner) {
  const Json json = TRY(parse_body(body));
  TRY(check_fields(json, model));
  const ApiFields fields(json);
  ResponseTools tools = TRY(read_response_tools(fields));
  withdraw_generic_tools(model, TRY(read_grammar(fields, tools.fields)).has_value(), tools.fields);
  const ResponsePrompt prompt =
      TRY(read_response_prompt(fields, model, tools.fields, {.store = store, .owner = owner}));
  JsonWriter out;
  out.object().key("object").value("response.input_tokens");
  return out.key("input_tokens").value(prompt.prompt.ids.size()).end_object().take();
}

}  // namespace tessera
