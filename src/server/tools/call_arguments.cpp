#include "tessera/server/tools/call_arguments.h"

#include <algorithm>
#include <utility>

#include "tessera/server/fields/json_scanner.h"

namespace tessera {
namespace {

bool has_text(const Json& call) { return call.find("function")->find("arguments")->is_string(); }

// Returns the calls of a message; null if it has none.
const Json* calls_of(const Json& message) { return message.find("tool_calls"); }

bool has_texts(const Json& message) {
  const Json* calls = calls_of(message);
  return calls != nullptr && std::ranges::any_of(calls->as_array(), has_text);
}

Json with_object(Json call) {
  Json function = *call.find("function");
  function.set("arguments", Json::object({{"arguments", *function.find("arguments")}}));
  return std::move(call.set("function", std::move(function)));
}

}  // namespace

bool are_whole_arguments(std::string_view arguments) {
  constexpr std::string_view kSpaces = " \n\r\t";
  if (arguments.empty()) return true;
  arguments.remove_prefix(std::min(arguments.find_first_not_of(kSpaces), arguments.size()));
  arguments = arguments.substr(0, arguments.find_last_not_of(kSpaces) + 1);
  JsonScanner scanner;
  for (const char c : arguments)
    if (scanner.done() || scanner.push(c) == JsonScanner::Part::kError) return false;
  return scanner.done();
}

Json shown_arguments(const std::string& arguments) {
  if (arguments.empty()) return Json::object();
  Result<Json> parsed = Json::parse(arguments, "the arguments");
  return parsed.ok() && parsed->is_object() ? *std::move(parsed) : Json(arguments);
}

std::optional<Json> with_argument_objects(const Json& messages) {
  if (std::ranges::none_of(messages.as_array(), has_texts)) return std::nullopt;
  Json out = messages;
  for (Json& message : out.as_array()) {
    if (!has_texts(message)) continue;
    Json calls = Json::array();
    for (const Json& call : calls_of(message)->as_array()) calls.push_back(has_text(call) ? with_object(call) : call);
    message.set("tool_calls", std::move(calls));
  }
  return out;
}

}  // namespace tessera
