// Names the formats of tool calls, and guesses a format from a chat template.
#include <utility>

#include "tessera/server/tools/call_formats.h"
#include "tessera/server/tools/tool_call_parser.h"

namespace tessera {
namespace {

struct Named {
  std::string_view name;
  std::unique_ptr<CallFormat> (*make)(KnownTools tools);
};

constexpr Named kFormats[] = {
    {"hermes", make_hermes_format},
    {"qwen25", make_hermes_format},
    {"qwen", make_hermes_format},
    {"llama3", make_llama3_format},
    {"llama3_json", make_llama3_format},
    {"mistral", make_mistral_format},
    {"deepseekv3", make_deepseek_format},
    {"deepseek_v3", make_deepseek_format},
    {"deepseekv31", make_deepseek_format},
    {"deepseek_v31", make_deepseek_format},
    {"deepseekv32", make_dsml_format},
    {"deepseek_v32", make_dsml_format},
    {"qwen3_coder", make_qwen3_coder_format},
    {"qwen3_xml", make_qwen3_coder_format},
    {"glm45", make_glm_format},
    {"glm4_moe", make_glm_format},
    {"glm47", make_glm_format},
    {"gpt-oss", make_harmony_format},
    {"openai", make_harmony_format},
    {"generic", make_generic_format},
};

}  // namespace

Result<std::unique_ptr<CallFormat>> make_call_format(std::string_view name, KnownTools tools) {
  for (const Named& format : kFormats) {
    if (format.name == name) return format.make(tools);
  }
  std::string message = "tool call parser \"" + std::string(name) + "\"; accepted: ";
  for (const Named& format : kFormats) {
    if (!message.ends_with(' ')) message += ", ";
    message += format.name;
  }
  return invalid_argument(std::move(message));
}

std::vector<std::string_view> tool_call_parser_names() {
  std::vector<std::string_view> names;
  for (const Named& format : kFormats) names.push_back(format.name);
  return names;
}

std::string_view guess_tool_call_parser(std::string_view chat_template) {
  const auto has = [&](std::string_view part) { return chat_template.find(part) != std::string_view::npos; };
  if (has("<|channel|>") && has("<|message|>")) return "gpt-oss";
  if (has("<arg_key>")) return "glm45";
  // <function= alone does not show the format, because some models write JSON between <function=NAME> and </function>.
  if (has("<function=")) return has("<parameter=") ? "qwen3_coder" : "";
  if (has("｜DSML｜function_calls")) return "deepseekv32";
  if (has("<tool_call>")) return "hermes";
  if (has("<|python_tag|>") || has(R"({"name": function name, "parameters":)")) return "llama3";
  if (has("[TOOL_CALLS]")) return "mistral";
  if (has("<｜tool▁call▁begin｜>")) return "deepseekv3";
  return "";
}

}  // namespace tessera
