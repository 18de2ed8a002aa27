#include "tessera/options/config_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tessera/options/config_yaml.h"
#include "tessera/options/values.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

// Returns the line number of each key of the JSON object, in the order of the keys. Precondition: `text` was parsed
// successfully.
std::vector<int> key_lines(std::string_view text) {
  std::vector<int> lines;
  int line = 1;
  int depth = 0;
  bool key_is_next = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == '{' || c == ',') key_is_next = true;
    if (c != '"') continue;
    if (depth == 1 && key_is_next) lines.push_back(line);
    key_is_next = false;
    for (++i; text[i] != '"'; ++i) i += text[i] == '\\' ? 1 : 0;
  }
  return lines;
}

Result<std::vector<ConfigEntry>> read_json(std::string_view text, const std::string& path) {
  const Json file = TRY(Json::parse(text, path));
  const std::vector<int> lines = key_lines(text);
  std::vector<ConfigEntry> entries;
  for (std::size_t i = 0; i < file.as_object().size(); ++i) {
    const auto& [key, value] = file.as_object()[i];
    entries.push_back({key, lines[i], value});
  }
  return entries;
}

// Refuses a map, an empty list, and a list that contains a map, a list or a null.
Status check_shape(const ConfigEntry& entry) {
  const auto refuse = [&](std::string_view what) {
    return invalid_argument(fmt::format("{} holds {}; accepted are a value and a list of values", entry.key, what));
  };
  if (entry.value.is_object()) return refuse("a map");
  if (!entry.value.is_array()) return ok_status();
  if (entry.value.as_array().empty()) return refuse("an empty list");
  for (const Json& item : entry.value.as_array()) {
    if (item.is_object()) return refuse("a map in a list");
    if (item.is_array()) return refuse("a list in a list");
    if (item.is_null()) return refuse("an empty value in a list");
  }
  return ok_status();
}

bool holds_numbers(std::string_view type) { return type == "N" || type == "1" || type == "X" || type == "LIST"; }

// Returns whether values of the type are whole numbers or strings with a unit.
bool is_number_or_text(std::string_view type) { return type == "BYTES" || type == "COUNT"; }

std::string accepted_value(std::string_view type, bool repeatable) {
  const std::string one = type.empty()                 ? "true or false"
                          : type == "N" || type == "1" ? "a whole number"
                          : type == "X"                ? "a number"
                          : type == "LIST"             ? "a number, a string, or a list of them"
                          : type == "BYTES"            ? "a whole number or a string (\"2GiB\")"
                          : type == "COUNT"            ? "a whole number or a string (\"32k\")"
                                                       : "a string";
  return one + (repeatable && type != "LIST" ? ", or a list of them" : "");
}

bool fits(const Json& value, std::string_view type) {
  if (type.empty()) return value.is_bool();
  if (type == "N" || type == "1") return value.is_int();
  if (type == "X") return value.is_number();
  if (type == "LIST") return value.is_number() || value.is_string();
  if (is_number_or_text(type)) return value.is_int() || value.is_string();
  return value.is_string();
}

std::string text_of(const Json& scalar) { return scalar.is_string() ? scalar.as_string() : scalar.dump(); }

// Converts the text to JSON: to a number if the text is a number and the type allows numbers, else to a string.
Json scalar_of(const std::string& text, std::string_view type) {
  if (!holds_numbers(type)) return text;
  if (const Result<std::int64_t> whole = parse_integer("", text, {INT64_MIN}); whole.ok()) return *whole;
  if (const Result<double> number = parse_number("", text); number.ok()) return *number;
  return text;
}

}  // namespace

Result<std::vector<ConfigEntry>> read_config_file(const std::string& path) {
  std::vector<ConfigEntry> entries = TRY(read_config_text(TRY(read_text_file(path, kMaxBytes)), path));
  if (entries.empty())
    return invalid_argument(
        fmt::format("{}: the file is empty; accepted are flags and values, \"page-size: 16\"", path));
  return entries;
}

Result<std::vector<ConfigEntry>> read_config_text(const std::string& text, const std::string& name) {
  if (find_invalid_utf8(text) != std::string_view::npos)
    return invalid_argument(fmt::format("{}: is not text in UTF-8", name));
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && text[first] == '{';
  std::vector<ConfigEntry> entries = TRY(is_json ? read_json(text, name) : read_yaml(text, name));
  std::erase_if(entries, [](const ConfigEntry& e) { return e.key == kSourcesKey && e.value.is_object(); });
  for (const ConfigEntry& entry : entries) TRY(check_shape(entry).with_context(fmt::format("{}:{}", name, entry.line)));
  return entries;
}

std::string flag_of_key(std::string_view key) {
  std::string flag(key.substr(key.starts_with("--") ? 2 : 0));
  std::replace(flag.begin(), flag.end(), '_', '-');
  return "--" + flag;
}

Result<std::vector<std::string>> config_texts(const ConfigEntry& entry, std::string_view type, bool repeatable) {
  if (entry.value.is_null()) return std::vector<std::string>{};
  const bool list = entry.value.is_array();
  const Json::Array items = list ? entry.value.as_array() : Json::Array{entry.value};
  std::vector<std::string> texts;
  for (const Json& item : items) {
    if (fits(item, type) && (!list || repeatable || type == "LIST")) {
      texts.push_back(text_of(item));
      continue;
    }
    const std::string given = list ? "a list of " + std::string(item.type_name()) + "s" : item.dump();
    const bool quote = item.is_number() && !holds_numbers(type) && !is_number_or_text(type) && !type.empty();
    return invalid_argument(fmt::format("{}: {} is not accepted; {} is{}", entry.key, given,
                                        accepted_value(type, repeatable), quote ? " (in quotes)" : ""));
  }
  if (!repeatable && texts.size() > 1) return std::vector<std::string>{fmt::format("{}", fmt::join(texts, ","))};
  return texts;
}

Json config_value(std::span<const std::string> texts, std::string_view type, bool repeatable) {
  if (type.empty()) return texts.back() == "true";
  if (!repeatable) return scalar_of(texts[0], type);
  Json list = Json::array();
  for (const std::string& text : texts) list.push_back(scalar_of(text, type));
  return list;
}

}  // namespace tessera
