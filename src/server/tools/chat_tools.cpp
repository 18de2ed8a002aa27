#include "tessera/server/tools/chat_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

constexpr std::size_t kMaxNameBytes = 256;

// Checks a tool, but does not change it, because templates print tools in their original form.
ApiStatus check_tool(const Json& json, const std::string& param) {
  if (!json.is_object()) {
    return invalid_field(param,
                         fmt::format("request: field \"{}\" is {}; accepted: an object", param, shown_value(&json)));
  }
  const ApiFields tool(json, param + ".");
  if (TRY(tool.string("type")) != "function") return tool.unsupported("type", "\"function\"");
  const Json* function_json = TRY(tool.object("function"));
  if (function_json == nullptr) return tool.wrong("function", "an object with \"name\" and \"parameters\"");
  const ApiFields function(*function_json, param + ".function.");
  const std::string name = TRY(function.string("name")).value_or("");
  if (name.empty() || name.size() > kMaxNameBytes) {
    return function.wrong("name", fmt::format("a string of 1 to {} bytes", kMaxNameBytes));
  }
  TRY(function.string("description"));
  TRY(function.object("parameters"));
  return api_ok();
}

const std::string& name_of(const Json& tool) { return tool.find("function")->find("name")->as_string(); }

Json parameters_of(const Json& tool) {
  const Json* parameters = tool.find("function")->find("parameters");
  if (parameters != nullptr && !parameters->is_null()) return *parameters;
  Json any = Json::object();
  any.set("type", "object");
  return any;
}

// Returns the schema of a tool's parameters, ready to be embedded in the schema of all calls. A schema without an "$id"
// gets one, so that its references ("#/$defs/…") resolve inside it. In old drafts of JSON Schema, "$id" may be an
// anchor ("#name"). If it is one, the anchor is moved to "$anchor".
Json embedded_parameters(const Json& tool) {
  Json parameters = parameters_of(tool);
  const Json* id = parameters.find("$id");
  if (id == nullptr) return parameters.set("$id", "parameters");
  if (!id->is_string() || !id->as_string().starts_with('#')) return parameters;
  const std::string anchor = id->as_string().substr(1);
  if (!anchor.empty() && parameters.find("$anchor") == nullptr) parameters.set("$anchor", anchor);
  return parameters.set("$id", "parameters");
}

std::optional<OutputGrammar> json_schema(const Json& schema, std::vector<std::string> tools, bool list_of_calls) {
  std::optional<OutputGrammar> grammar(std::in_place);
  grammar->spec = {.kind = GrammarSpec::Kind::kJsonSchema, .text = schema.dump()};
  grammar->param = "tool_choice";
  grammar->tools = std::move(tools);
  grammar->list_of_calls = list_of_calls;
  return grammar;
}

ApiStatus read_named(const Json& choice, ToolFields& out) {
  const ApiFields fields(choice, "tool_choice.");
  if (TRY(fields.string("type")) != "function") return fields.unsupported("type", "\"function\"");
  const Json* function = TRY(fields.object("function"));
  if (function == nullptr) return fields.wrong("function", "an object with \"name\"");
  const ApiFields inner(*function, "tool_choice.function.");
  const std::optional<std::string> name = TRY(inner.string("name"));
  const Json::Array none;
  const Json::Array& tools = out.tools.is_array() ? out.tools.as_array() : none;
  const auto known = std::find_if(tools.begin(), tools.end(), [&](const Json& tool) { return name == name_of(tool); });
  if (known == tools.end()) return inner.wrong("name", "the name of one of \"tools\"");
  out.choice = ToolChoice::kNamed;
  out.named = *name;
  return api_ok();
}

ApiStatus read_choice(const ApiFields& body, ToolFields& out) {
  const bool has_tools = out.tools.is_array();
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) {
    out.choice = has_tools ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (choice->is_object()) {
    TRY(read_named(*choice, out));
  } else if (*choice == Json("auto")) {
    out.choice = has_tools ? ToolChoice::kAuto : ToolChoice::kNone;
  } else if (*choice == Json("required")) {
    if (!has_tools) return body.wrong("tool_choice", "\"none\" or \"auto\", because the request has no \"tools\"");
    out.choice = ToolChoice::kRequired;
  } else if (*choice != Json("none")) {
    return body.wrong("tool_choice", R"("none", "auto", "required" or {"type": "function", "function": {"name": …}})");
  }
  return api_ok();
}

}  // namespace

ApiResult<ToolFields> read_tools(const ApiFields& body) {
  ToolFields out;
  const Json* tools = TRY(body.array("tools"));
  if (tools != nullptr) {
    const Json::Array& list = tools->as_array();
    for (std::size_t i = 0; i < list.size(); ++i) TRY(check_tool(list[i], fmt::format("tools[{}]", i)));
    if (!list.empty()) out.tools = *tools;
  }
  TRY(read_choice(body, out));
  if (out.choice == ToolChoice::kNone) out.tools = Json();
  out.parallel = TRY(body.boolean_or("parallel_tool_calls", true));
  return out;
}

ApiResult<std::optional<OutputGrammar>> tool_grammar(const ToolFields& tools) {
  if (tools.choice != ToolChoice::kRequired && tools.choice != ToolChoice::kNamed) {
    return std::optional<OutputGrammar>();
  }
  Json calls = Json::array();
  std::vector<std::string> names;
  for (const Json& tool : tools.tools.as_array()) {
    if (tools.choice == ToolChoice::kNamed && name_of(tool) == tools.named)
      return json_schema(parameters_of(tool), {tools.named}, /*list_of_calls=*/false);
    names.push_back(name_of(tool));
    Json name = Json::object();
    name.set("const", name_of(tool));
    Json properties = Json::object();
    properties.set("name", std::move(name)).set("parameters", embedded_parameters(tool));
    Json call = Json::object();
    // The ids inside the parameters are relative to this id, so several tools may use the same ids.
    call.set("$id", fmt::format("tool:{}/", calls.as_array().size()));
    call.set("type", "object").set("properties", std::move(properties));
    call.set("required", Json::Array{"name", "parameters"}).set("additionalProperties", false);
    calls.push_back(std::move(call));
  }
  Json items = Json::object();
  items.set("anyOf", std::move(calls));
  Json schema = Json::object();
  schema.set("type", "array").set("minItems", 1).set("items", std::move(items));
  if (!tools.parallel) schema.set("maxItems", 1);
  return json_schema(schema, std::move(names), /*list_of_calls=*/true);
}

}  // namespace tessera
