#include "tessera/load/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

constexpr std::string_view kAzureHeading = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::int64_t kMostTokens = 1 << 24;

// Removes a number from the front of `text`, and the character `behind`, which must follow the number. If `behind` is
// 0, the number must end the text.
template <class T>
std::optional<T> take_number(std::string_view& text, char behind) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto length = static_cast<std::size_t>(end - text.data());
  const bool ends = behind == '\0' ? length == text.size() : length < text.size() && text[length] == behind;
  if (error != std::errc() || !ends) return std::nullopt;
  text.remove_prefix(behind == '\0' ? length : length + 1);
  return value;
}

// Converts a time such as "2023-11-16 18:17:03.9799600" to seconds. Ignores an offset from UTC such as "+00:00".
std::optional<double> seconds_of(std::string_view text) {
  const auto year = take_number<int>(text, '-');
  const auto month = take_number<unsigned>(text, '-');
  const auto day = take_number<unsigned>(text, ' ');
  const auto hour = take_number<int>(text, ':');
  const auto minute = take_number<int>(text, ':');
  if (const std::size_t offset = text.find('+'); offset != std::string_view::npos) text = text.substr(0, offset);
  const auto second = take_number<double>(text, '\0');
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + *hour * 3600 + *minute * 60 + *second;
}

Result<LoadRequest> read_azure(std::string_view line) {
  const std::string shown = clip_text(std::string(line));
  const std::size_t comma = std::min(line.find(','), line.size());
  const std::optional<double> time = seconds_of(line.substr(0, comma));
  line.remove_prefix(std::min(comma + 1, line.size()));
  const auto input = take_number<std::int64_t>(line, ',');
  const auto output = take_number<std::int64_t>(line, '\0');
  const auto is_length = [](const std::optional<std::int64_t>& n) { return n && *n >= 0 && *n <= kMostTokens; };
  if (!time || !is_length(input) || !is_length(output)) {
    return invalid_argument(
        fmt::format("\"{}\" is not accepted; a line like 2023-11-16 18:17:03.97996,4808,10 is", shown));
  }
  return LoadRequest{.arrival_s = *time, .input_tokens = *input, .output_tokens = *output};
}

Result<LoadRequest> read_mooncake(std::string_view line) {
  const Json json = TRY(Json::parse(line, "the request"));
  if (!json.is_object()) return invalid_argument("the request is no JSON object");
  const Fields fields(json, "the request");
  LoadRequest request;
  request.arrival_s = 1e-3 * TRY(fields.required_number("timestamp", 0, 1e15));
  request.input_tokens = TRY(fields.required_int("input_length", 0, kMostTokens));
  request.output_tokens = TRY(fields.required_int("output_length", 0, kMostTokens));
  if (const Json* blocks = fields.find("hash_ids"); blocks != nullptr) {
    const bool list = blocks->is_array() && std::all_of(blocks->as_array().begin(), blocks->as_array().end(),
                                                        [](const Json& id) { return id.is_int() && id.as_int() >= 0; });
    if (!list) return fields.wrong("hash_ids", "a list of whole numbers, none negative");
    for (const Json& id : blocks->as_array()) request.blocks.push_back(id.as_int());
  }
  return request;
}

std::string_view without_return(const std::string& line) {
  const std::string_view view(line);
  return view.ends_with('\r') ? view.substr(0, view.size() - 1) : view;
}

// Reads the next line. Returns false at the end. A line that is too long is cut off, so that no reader accepts it.
bool take_line(std::istream& file, std::string& line) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  line.clear();
  for (int c = file.get(); file && c != '\n' && line.size() < kMost; c = file.get())
    line.push_back(static_cast<char>(c));
  return !line.empty() || file.good();
}

}  // namespace

Result<std::vector<LoadRequest>> read_trace(const std::string& path, std::int64_t most) {
  std::ifstream file(path);
  if (!file) return not_found(fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  std::string line;
  if (!take_line(file, line)) {
    return invalid_argument(file.bad() ? fmt::format("{} cannot be read: {}", path, std::strerror(errno))
                                       : fmt::format("{} has no lines", path));
  }
  const bool azure = without_return(line) == kAzureHeading;
  if (!azure && !line.starts_with('{')) {
    return invalid_argument(fmt::format("{} begins with \"{}\"; accepted are \"{}\" and a JSON object", path,
                                        clip_text(line), kAzureHeading));
  }
  std::vector<LoadRequest> requests;
  std::int64_t number = 1;
  bool more = true;
  if (azure) {
    more = take_line(file, line);
    ++number;
  }
  for (; more && std::ssize(requests) < most; more = take_line(file, line), ++number) {
    const std::string_view text = without_return(line);
    if (text.empty()) continue;
    Result<LoadRequest> request = azure ? read_azure(text) : read_mooncake(text);
    if (!request.ok()) return request.status().with_context(fmt::format("{}:{}", path, number));
    request->input_tokens = std::max<std::int64_t>(request->input_tokens, 1);
    request->output_tokens = std::max<std::int64_t>(request->output_tokens, 1);
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return invalid_argument(fmt::format("{} has no requests", path));
  return requests;
}

}  // namespace tessera
