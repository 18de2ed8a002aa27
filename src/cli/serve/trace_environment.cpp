#include "tessera/cli/serve/trace_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::cli {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// Returns whether an HTTP header can hold the text, that is, whether the text has only printable ASCII characters.
bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c < '\x7f'; });
}

Status take_headers(const char* variable, std::string_view text, TraceOptions& traces) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view pair = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (pair.empty()) continue;
    const std::size_t equals = pair.find('=');
    const std::string name(trimmed(pair.substr(0, equals)));
    const std::string value = equals == std::string_view::npos ? "" : unescaped(trimmed(pair.substr(equals + 1)));
    if (equals == std::string_view::npos || name.empty() || name.find_first_of(" :") != std::string::npos ||
        !is_printable(name) || !is_printable(value))
      return invalid_argument(
          fmt::format("{}: header {} is not accepted; accepted: NAME=VALUE, several with commas between them", variable,
                      traces.headers.size() + 1));
    traces.headers.emplace_back(name, value);
  }
  return ok_status();
}

}  // namespace

Status take_trace_environment(const Environment& get, TraceOptions& traces) {
  if (const char* const name = get("OTEL_SERVICE_NAME"); name != nullptr && *name != '\0') traces.service = name;
  for (const char* variable : {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"}) {
    const char* const text = get(variable);
    if (text != nullptr) return take_headers(variable, text, traces);
  }
  return ok_status();
}

}  // namespace tessera::cli
