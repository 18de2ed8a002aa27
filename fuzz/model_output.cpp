// Catches: crashes of the reasoning and tool call parsers on a model's output; results that depend on where the text is
// cut into pieces; calls with arguments that are not a JSON object.
#include <map>
#include <memory>

#include "fuzz.h"
#include "tessera/server/reasoning/reasoning_parser.h"
#include "tessera/server/tools/tool_call_parser.h"

using namespace tessera;

namespace {

struct Output {
  std::string reasoning;
  std::string content;
  std::map<int, std::pair<std::string, std::string>> calls;  // index → name and arguments
  bool operator==(const Output&) const = default;
};

void add(Output& output, const ToolText& text) {
  output.content += text.content;
  for (const ToolCallDelta& delta : text.calls) {
    auto& [name, arguments] = output.calls[delta.index];
    name += delta.name;
    arguments += delta.arguments;
  }
}

// Returns definitions of tools. Their schemas decide how the parsers convert a call's values from text to JSON.
const Json& known_tools() {
  static const Json kTools = *Json::parse(
      R"([{"function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"}, "i": {"type": "integer"},
          "n": {"type": ["string", "null"]}, "o": {"anyOf": [{"type": "object"}, {"type": "array"}]}}}}}])",
      "tools");
  return kTools;
}

struct Case {
  std::string_view reasoning;
  std::string_view tools;
  bool opened = false;
  bool has_tools = false;  // if false, any name counts as a function's name
};

// Reads the text in pieces of `cut` bytes, or everything at once if `cut` is 0.
Output read(const Case& given, std::string_view text, std::size_t cut) {
  static const Json kNoTools;
  auto reasoning_parser = ReasoningParser::create(given.reasoning, given.opened);
  auto tool_parser =
      ToolCallParser::create(given.tools, given.has_tools ? known_tools() : kNoTools, [] { return std::string("id"); });
  fuzz::require(reasoning_parser.ok() && tool_parser.ok(), "parsers are made by the names they are listed with");
  Output output;
  const auto take = [&](const ReasoningText& part) {
    output.reasoning += part.reasoning;
    add(output, tool_parser->push(part.content));
  };
  if (cut == 0) cut = text.size() + 1;
  for (; !text.empty(); text.remove_prefix(std::min(cut, text.size())))
    take(reasoning_parser->push(text.substr(0, cut)));
  take(reasoning_parser->finish());
  add(output, tool_parser->finish());
  return output;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text = fuzz::as_text(data, size);
  const auto reasoning_names = reasoning_parser_names();
  const auto tool_names = tool_call_parser_names();
  Case given;
  given.reasoning = reasoning_names[fuzz::take_choice(text, reasoning_names.size())];
  given.tools = tool_names[fuzz::take_choice(text, tool_names.size())];
  const std::size_t flags = fuzz::take_choice(text, 4);
  given.opened = flags % 2 == 1;
  given.has_tools = flags / 2 == 1;
  const Output whole = read(given, text, 0);
  for (const std::size_t cut : {std::size_t{1}, std::size_t{3}}) {
    fuzz::require(read(given, text, cut) == whole, "answers do not depend on where the text is cut");
  }
  return 0;
}
