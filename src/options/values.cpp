#include "tessera/options/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tessera/base/parsed_number.h"
#include "tessera/model/formats/start_format.h"

namespace tessera {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ') || text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with(' ') || text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// Returns the range as text: "from 1 to 20" or "of 1 or more".
std::string range_text(IntegerRange range) {
  const bool bounded = range.max != std::numeric_limits<std::int64_t>::max();
  return bounded ? fmt::format("from {} to {}", range.min, range.max) : fmt::format("of {} or more", range.min);
}

// Reads a number without sign or exponent, perhaps with a suffix. Returns nothing if the result is not a whole number.
// With a suffix, also returns nothing if the result exceeds 2^53, because a double does not represent every larger
// whole number exactly.
std::optional<std::int64_t> whole_count(std::string_view text) {
  constexpr std::string_view kPowers = "kmgt";
  const std::string_view digits = text.substr(0, text.find_first_not_of("0123456789."));
  const std::string_view suffix = text.substr(digits.size());
  if (digits.empty() || digits.starts_with('.') || digits.ends_with('.')) return std::nullopt;
  if (suffix.empty()) return parsed_number<std::int64_t>(digits);
  const bool binary = suffix[0] >= 'A' && suffix[0] <= 'Z';
  const std::size_t power = kPowers.find(static_cast<char>(binary ? suffix[0] - 'A' + 'a' : suffix[0]));
  if (suffix.size() != 1 || power == std::string_view::npos) return std::nullopt;
  if (binary && digits.find('.') != std::string_view::npos) return std::nullopt;
  const std::optional<double> given = parsed_number<double>(digits);
  const double exact = given.value_or(-1) * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  const double whole = std::round(exact);
  constexpr double kMost = 0x1p53;
  // The accepted relative error of the product. There is an error, because a double cannot hold a number such as 25.6
  // exactly.
  constexpr double kRounding = 1e-12;
  if (whole < 0 || whole > kMost || std::abs(exact - whole) > kRounding * whole) return std::nullopt;
  return static_cast<std::int64_t>(whole);
}

}  // namespace

Result<std::int64_t> parse_integer(std::string_view flag, std::string_view text, IntegerRange range) {
  const std::optional<std::int64_t> value = parsed_number<std::int64_t>(text);
  if (value && *value >= range.min && *value <= range.max) return *value;
  return invalid_argument(
      fmt::format("{}: \"{}\" is not accepted; a whole number {} is", flag, text, range_text(range)));
}

Result<std::int64_t> parse_count(std::string_view flag, std::string_view text, IntegerRange range) {
  const std::optional<std::int64_t> value = whole_count(text);
  if (value && *value >= range.min && *value <= range.max) return *value;
  return invalid_argument(
      fmt::format("{}: \"{}\" is not accepted; a whole number {} is, also written as 32k (32000) or 32K (32768)", flag,
                  text, range_text(range)));
}

Result<double> parse_number(std::string_view flag, std::string_view text) {
  const std::optional<double> value = parsed_number<double>(text);
  if (value && std::isfinite(*value)) return *value;
  return invalid_argument(fmt::format("{}: \"{}\" is not a number", flag, text));
}

Result<std::int64_t> parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::string_view kPowers = "KMGT";
  const std::size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view unit = text.substr(digits);
  double factor = 1;
  bool known = unit.empty();
  if (const std::size_t power = unit.empty() ? std::string_view::npos : kPowers.find(unit[0]);
      power != std::string_view::npos) {
    known = unit.size() == 1 || unit.substr(1) == "iB" || unit.substr(1) == "B";
    factor = std::pow(unit.ends_with('B') && !unit.ends_with("iB") ? 1000.0 : 1024.0, static_cast<double>(power + 1));
  }
  const std::optional<double> count = parsed_number<double>(text.substr(0, digits));
  constexpr double kMost = 0x1p53;  // above this, a double cannot represent every byte count
  if (known && count && *count * factor >= 1 && *count * factor <= kMost)
    return static_cast<std::int64_t>(*count * factor);
  return invalid_argument(
      fmt::format("{}: \"{}\" is not accepted; bytes are, like 67108864, 64M, 0.5GiB, 2GB", flag, text));
}

Result<std::vector<std::string>> parse_names(std::string_view flag, std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end == begin) return invalid_argument(fmt::format("{}: \"{}\" has an empty name", flag, text));
    names.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

Result<std::vector<TokenId>> parse_token_ids(std::string_view flag, std::string_view text) {
  std::string_view list = trimmed(text);
  if (list.starts_with('[') && list.ends_with(']')) list = trimmed(list.substr(1, list.size() - 2));
  std::vector<TokenId> ids;
  if (list.empty()) {
    return invalid_argument(fmt::format(R"({}: "{}" has no ids; accepted is a list like "1,2,3")", flag, text));
  }
  while (true) {
    const std::size_t comma = list.find(',');
    const std::string_view item = trimmed(list.substr(0, comma));
    const std::optional<std::int32_t> id = parsed_number<std::int32_t>(item);
    if (!id || *id < 0) {
      return invalid_argument(
          fmt::format(R"({}: "{}" is not a token id; accepted is a list like "1,2,3")", flag, item));
    }
    ids.emplace_back(*id);
    if (comma == std::string_view::npos) return ids;
    list.remove_prefix(comma + 1);
  }
}

Result<std::string> parse_start_format(std::string_view flag, std::string_view text) {
  if (start_format_from_name(text)) return std::string(text);
  return invalid_argument(fmt::format("{}: \"{}\" is not accepted; accepted: {}", flag, text, kStartFormatNames));
}

Result<std::size_t> parse_choice(std::string_view flag, std::string_view text,
                                 std::span<const std::string_view> choices) {
  const auto it = std::find(choices.begin(), choices.end(), text);
  if (it != choices.end()) return static_cast<std::size_t>(it - choices.begin());
  return invalid_argument(
      fmt::format("{}: \"{}\" is not accepted; {} is", flag, text, fmt::join(choices.begin(), choices.end(), ", ")));
}

}  // namespace tessera
