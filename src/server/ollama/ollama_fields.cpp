#include "tessera/server/ollama/ollama_fields.h"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

#include "tessera/server/fields/request_fields.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

ApiResult<std::optional<OutputGrammar>> read_ollama_format(const ApiFields& fields) {
  const Json* format = fields.find("format");
  if (format == nullptr || *format == Json("")) return std::optional<OutputGrammar>();
  if (*format == Json("json"))
    return std::optional(
        OutputGrammar{.spec = {.kind = GrammarSpec::Kind::kJsonObject, .text = {}}, .param = "format"});
  if (!format->is_object()) return fields.wrong("format", "\"json\", a JSON schema, or \"\"");
  return std::optional(
      OutputGrammar{.spec = {.kind = GrammarSpec::Kind::kJsonSchema, .text = format->dump()}, .param = "format"});
}

bool is_effort(const std::string& text) { return text == "low" || text == "medium" || text == "high" || text == "max"; }

ApiStatus check_name(const ServedModel& model, const ApiFields& fields) {
  constexpr std::string_view kLatest = ":latest";
  std::optional<std::string> name = TRY(fields.string("model"));
  if (!name) name = TRY(fields.string("name"));
  if (!name || name->empty()) return fields.wrong("model", fmt::format("\"{}\"", model.name));
  Json named = Json::object();
  named.set("model", *name);
  ApiStatus known = model.check_name(named);
  if (known.ok() || !name->ends_with(kLatest)) return known;
  named.set("model", name->substr(0, name->size() - kLatest.size()));
  return model.check_name(named).ok() ? api_ok() : known;
}

}  // namespace

ApiStatus check_ollama_request(const ServedModel& model, const ApiFields& fields, std::uint32_t object,
                               ApiStatus (ServedModel::*can)() const) {
  TRY(check_name(model, fields));
  if (can != nullptr) TRY((model.*can)());
  return check_request_fields(fields, object, model.allow_unknown_fields);
}

ApiResult<OutputFields> read_ollama_output(const ApiFields& fields, const ServedModel& model) {
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kGreatest = std::numeric_limits<std::int64_t>::max();
  const Json none = Json::object();
  const Json* given = TRY(fields.object("options"));
  const ApiFields options(given != nullptr ? *given : none, "options.");
  TRY(check_request_fields(options, request_object::kOllamaOptions, model.allow_unknown_fields));
  // Reads the options whose names or values are Ollama's own. The others have the names that all protocols share.
  const std::optional<std::int64_t> predict = TRY(options.integer("num_predict", -2, kMostTokens));
  const std::optional<double> penalty = TRY(options.number("repeat_penalty", 0, 10));
  if (penalty && *penalty <= 0) return options.wrong("repeat_penalty", "a number in (0, 10]");
  const std::optional<std::int64_t> seed = TRY(options.integer("seed", kLeast, kGreatest));
  Json shared = Json::object();
  for (const char* key : {"temperature", "top_k", "top_p", "min_p", "presence_penalty", "frequency_penalty", "stop"}) {
    if (const Json* value = options.find(key)) shared.set(key, *value);
  }
  if (penalty) shared.set("repetition_penalty", *penalty);
  // If "num_predict" is not positive, the answer may have as many tokens as the context has room for.
  if (predict && *predict > 0) shared.set("max_tokens", *predict);
  if (seed && *seed >= 0) shared.set("seed", *seed);  // if absent or negative, the server chooses a seed
  OutputFields output = TRY(read_output_fields(ApiFields(shared, "options."), model));
  output.grammar = TRY(read_ollama_format(fields));
  return output;
}

ApiResult<Json> read_think(const ApiFields& fields, const ServedModel& model, const ChatTemplate& chat) {
  Json variables = Json::object();
  const Json* think = fields.find("think");
  if (think == nullptr) return variables;
  const bool has_effort = think->is_string();
  if (!think->is_bool() && !(has_effort && is_effort(think->as_string())))
    return fields.wrong("think", R"(true, false, "low", "medium", "high" or "max")");
  const bool wanted = has_effort || think->as_bool();
  if (wanted && model.reasoning_parser.empty())
    return unsupported_field("think", fmt::format("\"{}\" does not support thinking; accepted: false", model.name));
  const bool knows_effort = chat.names("reasoning_effort");
  if (has_effort && !knows_effort && !chat.names("enable_thinking"))
    return fields.unsupported("think", "true or false: the chat template knows no effort");
  if (chat.names("enable_thinking")) variables.set("enable_thinking", wanted);
  if (has_effort && knows_effort) variables.set("reasoning_effort", *think);
  return variables;
}

}  // namespace tessera
