#include "tessera/model/weights/gguf_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/parsed_number.h"

namespace tessera {
namespace {

Status wrong(std::string_view text, std::string_view accepted) {
  return invalid_argument(
      fmt::format("{} is no value of metadata; accepted: {}", clip_text(Json(std::string(text)).dump()), accepted));
}

}  // namespace

Result<GgufOverride> GgufOverride::parse(std::string_view text) {
  constexpr std::string_view kForm = "KEY=TYPE:VALUE, with the TYPE int, float, bool or str";
  const std::size_t equals = text.find('=');
  const std::size_t colon = text.find(':', equals == std::string_view::npos ? 0 : equals);
  if (equals == std::string_view::npos || equals == 0 || colon == std::string_view::npos) return wrong(text, kForm);
  const std::string_view type = text.substr(equals + 1, colon - equals - 1);
  const std::string_view value = text.substr(colon + 1);
  GgufOverride result{.key = std::string(text.substr(0, equals)), .value = {}};
  if (type == "int") {
    const std::optional<std::int64_t> number = parsed_number<std::int64_t>(value);
    if (!number) return wrong(text, "an integer behind int:");
    result.value = *number;
  } else if (type == "float") {
    const std::optional<double> number = parsed_number<double>(value);
    if (!number || !std::isfinite(*number)) return wrong(text, "a finite number behind float:");
    result.value = *number;
  } else if (type == "bool") {
    if (value != "true" && value != "false") return wrong(text, "true or false behind bool:");
    result.value = value == "true";
  } else if (type == "str") {
    result.value = std::string(value);
  } else {
    return wrong(text, kForm);
  }
  return result;
}

}  // namespace tessera
