#include "tessera/server/http/bodies/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "tessera/server/http/http_message.h"

namespace tessera {
namespace {

constexpr std::string_view kFormType = "multipart/form-data";
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostBoundary = 70;  // RFC 2046, 5.1.1

// Removes the value at the front of `rest`, and returns the value without its quotes and without the backslashes of
// escapes.
std::string take_value(std::string_view& rest) {
  if (!rest.starts_with('"')) {
    const std::size_t end = std::min(rest.find(';'), rest.size());
    std::string value(trimmed(rest.substr(0, end)));
    rest.remove_prefix(end);
    return value;
  }
  std::string value;
  std::size_t at = 1;
  for (; at < rest.size() && rest[at] != '"'; ++at) {
    // A backslash escapes a quote or itself. Browsers send any other backslash unescaped ("C:\file").
    if (rest[at] == '\\' && at + 1 < rest.size() && (rest[at + 1] == '"' || rest[at + 1] == '\\')) ++at;
    value += rest[at];
  }
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return value;
}

// Returns the value of a header's parameter: for 'form-data; name="file"', the parameter "name" has the value "file".
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  std::size_t at = header.find(';');
  while (at != std::string_view::npos) {
    header = trimmed(header.substr(at + 1));
    const std::size_t equals = header.find_first_of("=;");
    if (equals == std::string_view::npos) return std::nullopt;
    if (header[equals] == ';') {
      at = equals;
      continue;
    }
    const std::string_view key = trimmed(header.substr(0, equals));
    std::string_view rest = trimmed(header.substr(equals + 1));
    std::string value = take_value(rest);
    if (equals_ignoring_case(key, name)) return value;
    header = rest;
    at = header.find(';');
  }
  return std::nullopt;
}

// Returns the value of a part's header line, or nothing if there is no such line.
std::optional<std::string_view> header_of(std::string_view head, std::string_view name) {
  while (!head.empty()) {
    const std::size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && equals_ignoring_case(trimmed(line.substr(0, colon)), name))
      return trimmed(line.substr(colon + 1));
    head.remove_prefix(std::min(end + 2, head.size()));
  }
  return std::nullopt;
}

Result<FormPart> read_part(std::string_view text, std::size_t number) {
  std::size_t blank = text.find("\r\n\r\n");
  if (blank == std::string_view::npos)
    return invalid_argument(fmt::format("part {} of the form has no empty line after its headers", number));
  FormPart part{.content = text.substr(blank + 4)};
  const std::optional<std::string_view> disposition = header_of(text.substr(0, blank), "Content-Disposition");
  const std::optional<std::string> name = disposition ? parameter(*disposition, "name") : std::nullopt;
  if (!name || name->empty())
    return invalid_argument(
        fmt::format("part {} of the form has no name; accepted: Content-Disposition: form-data; name=\"…\"", number));
  part.name = *name;
  part.filename = parameter(*disposition, "filename").value_or("");
  return part;
}

}  // namespace

bool is_form_type(std::string_view content_type) {
  return equals_ignoring_case(trimmed(content_type.substr(0, content_type.find(';'))), kFormType);
}

Result<std::vector<FormPart>> read_form(std::string_view content_type, std::string_view body) {
  const std::optional<std::string> boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > kMostBoundary)
    return invalid_argument(
        fmt::format("the content type has no boundary of 1 to {} characters; accepted: {}; "
                    "boundary=…",
                    kMostBoundary, kFormType));
  const std::string mark = "--" + *boundary;
  const std::string between = "\r\n" + mark;
  // Ignores the bytes before the first boundary.
  std::size_t at = body.starts_with(mark) ? mark.size() : body.find(between);
  if (at == std::string_view::npos) return invalid_argument("the form does not contain its boundary");
  if (!body.starts_with(mark)) at += between.size();
  std::vector<FormPart> parts;
  while (!body.substr(at).starts_with("--")) {
    const std::size_t line = body.find("\r\n", at);
    const std::size_t end = line == std::string_view::npos ? line : body.find(between, line);
    if (end == std::string_view::npos) return invalid_argument("the form ends before its last boundary");
    if (!trimmed(body.substr(at, line - at)).empty())
      return invalid_argument("a boundary of the form is not alone on its line");
    if (parts.size() == kMostParts) return invalid_argument(fmt::format("the form has more than {} parts", kMostParts));
    // `end` is less than `begin` if the next boundary directly follows this one. The part is then empty, which is an
    // error.
    const std::size_t begin = line + 2;
    parts.push_back(TRY(read_part(body.substr(begin, std::max(end, begin) - begin), parts.size() + 1)));
    at = end + between.size();
  }
  return parts;
}

}  // namespace tessera
