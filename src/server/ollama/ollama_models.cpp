#include "tessera/server/ollama/ollama_models.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "tessera/base/hash.h"
#include "tessera/server/fields/json_writer.h"
#include "tessera/server/fields/request_fields.h"
#include "tessera/server/ollama/ollama_fields.h"

namespace tessera {
namespace {

// Returns the family as Ollama names it: "qwen3" for "Qwen3ForCausalLM".
std::string family_of(const ServedModel& model) {
  std::string family = model.architecture.substr(0, model.architecture.find("For"));
  std::ranges::transform(family, family.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return family;
}

// Returns a count in short form: "8.0B", "600M", "4.2K".
std::string short_count(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number >= 1e9) return fmt::format("{:.1f}B", number * 1e-9);
  if (number >= 1e6) return fmt::format("{:.0f}M", number * 1e-6);
  return fmt::format("{:.1f}K", number * 1e-3);
}

std::string upper(std::string text) {
  for (const auto& [name, shown] :
       {std::pair("bfloat16", "BF16"), std::pair("float16", "F16"), std::pair("float32", "F32")}) {
    if (text == name) return shown;
  }
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

void write_details(JsonWriter& json, const ServedModel& model) {
  const std::string family = family_of(model);
  json.object().key("parent_model").value("").key("format").value("safetensors").key("family").value(family);
  json.key("families").array().value(family).end_array();
  json.key("parameter_size").value(short_count(model.parameters));
  json.key("quantization_level").value(upper(model.weight_type)).end_object();
}

std::string modified_at(const ServedModel& model) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(model.created)));
}

void write_ollama_model(JsonWriter& json, const ServedModel& model, const std::string& name) {
  Hasher hash;
  hash.add(model.path);
  hash.add(model.fingerprint);
  json.object().key("name").value(name).key("model").value(name).key("size").value(model.weight_bytes);
  json.key("digest").value(hash.finish().hex());
  write_details(json.key("details"), model);
}

// Returns the sampling options as Ollama's text "parameters": one option a line.
std::string parameters_text(const GenerationConfig& config) {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format("{:<30} {}\n", name, *value);
  };
  add("temperature", config.temperature);
  add("top_k", config.top_k);
  add("top_p", config.top_p);
  add("min_p", config.min_p);
  add("repeat_penalty", config.repetition_penalty);
  return text;
}

void write_capabilities(JsonWriter& json, const ServedModel& model) {
  json.array();
  if (model.generates()) json.value("completion");
  if (model.embedding) json.value("embedding");
  if (model.generates() && model.chat && !model.tool_call_parser.empty()) json.value("tools");
  if (model.generates() && !model.reasoning_parser.empty()) json.value("thinking");
  if (model.images) json.value("vision");
  json.end_array();
}

}  // namespace

std::string ollama_tags_body(const ServedModel& model) {
  JsonWriter json;
  json.object().key("models").array();
  for (const std::string& name : model.names()) {
    write_ollama_model(json, model, name);
    json.key("modified_at").value(modified_at(model)).end_object();
  }
  return json.end_array().end_object().take();
}

std::string ollama_ps_body(const ServedModel& model) {
  constexpr std::string_view kNever = "2318-11-25T00:00:00Z";  // Ollama's expiry time of a model that stays loaded
  JsonWriter json;
  json.object().key("models").array();
  for (const std::string& name : model.names()) {
    write_ollama_model(json, model, name);
    json.key("expires_at").value(kNever).key("size_vram").value(model.weight_bytes);
    json.key("context_length").value(model.context_length).end_object();
  }
  return json.end_array().end_object().take();
}

std::string ollama_version_body() {
  JsonWriter json;
  return json.object().key("version").value(kOllamaVersion).end_object().take();
}

ApiResult<std::string> ollama_show_body(const ServedModel& model, std::string_view body) {
  const Json request = TRY(parse_body(body));
  TRY(check_ollama_request(model, ApiFields(request), request_object::kOllamaShow));
  const std::string family = family_of(model);
  JsonWriter json;
  json.object().key("modelfile").value("FROM " + model.path).key("parameters").value(parameters_text(model.generation));
  json.key("template").value("");  // Ollama's templates are in another language than the model's
  write_details(json.key("details"), model);
  json.key("model_info").object().key("general.architecture").value(family);
  json.key("general.basename").value(model.name).key("general.parameter_count").value(model.parameters);
  json.key(family + ".context_length").value(model.context_length);
  json.key(family + ".embedding_length").value(model.hidden_size);
  json.key(family + ".vocab_size").value(model.vocab_size).end_object();
  write_capabilities(json.key("capabilities"), model);
  return json.key("modified_at").value(modified_at(model)).end_object().take();
}

bool asks_for_page(const HttpRequest& request) {
  return request.header("Accept").find("text/html") != std::string_view::npos;
}

HttpResponse ollama_is_running() {
  return {.content_type = "text/plain; charset=utf-8", .body = "Ollama is running", .headers = {}};
}

}  // namespace tessera
