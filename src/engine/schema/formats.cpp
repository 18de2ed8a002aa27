#include "tessera/engine/schema/formats.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/schema/regex.h"

namespace tessera::schema {
namespace {

// Matches dates of the years 0001 to 9999, and 29 February only in leap years.
constexpr std::string_view kDate =
    "((?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})-"
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8])"
    ")"
    "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)";
// Matches times without leap seconds, because many programs refuse leap seconds.
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kDuration =
    "P(?:(?:[0-9]{1,4}D|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}Y(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?)"
    "(?:T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S))?"
    "|T(?:[0-9]{1,4}H(?:[0-9]{1,4}M(?:[0-9]{1,4}S)?)?|[0-9]{1,4}M(?:[0-9]{1,4}S)?|[0-9]{1,4}S)|[0-9]{1,4}W)";
constexpr std::string_view kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
// A label is a part of a host name between dots. It begins and ends with a letter or digit. Its length is limited, so
// that four labels stay within 253 characters. The last label begins with a letter, so that no host looks like an
// address.
constexpr std::string_view kLabel = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?";
constexpr std::string_view kLastLabel = "[a-zA-Z](?:[a-zA-Z0-9-]{0,58}[a-zA-Z0-9])?";
constexpr std::string_view kAtom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,30}";
constexpr std::string_view kPathCharacter = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
constexpr std::string_view kQueryCharacter = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})";
constexpr std::string_view kJsonPointer = "(?:/(?:[^/~]|~[01])*)*";

// Returns a pattern for the regular expressions that have the same meaning in all dialects. They consist of characters,
// classes and groups, which may be repeated.
std::string regex() {
  const std::string atom = R"((?:[a-zA-Z0-9 _:@%=,;!"'<>~#&/.-]|\\[dDwWsS.$^*+?()\[\]{}|\\]))";
  const std::string group = R"(\[\^?(?:[a-zA-Z0-9_ ]|a-z|A-Z|0-9|\\[dws])+\])";
  const std::string count = R"((?:[*+?]|\{[1-9][0-9]?(?:,)?\})?)";
  const std::string terms = fmt::format("(?:(?:{}|{}){})+", atom, group, count);
  const std::string inner = fmt::format(R"(\((?:\?:)?{0}(?:\|{0})*\){1})", terms, count);
  return fmt::format(R"(\^?(?:{0}|{1})*\$?)", terms, inner);
}
// Matches URI templates (RFC 6570) whose variables have names of letters, digits and "_".
constexpr std::string_view kUriTemplate =
    R"((?:[a-zA-Z0-9._~:/?#@!$&()*+,;=-]|%[0-9A-Fa-f]{2}|\{[+#./;?&]?[a-zA-Z0-9_]+(?:,[a-zA-Z0-9_]+)*\*?\})*)";

std::string ipv4() { return fmt::format("{0}\\.{0}\\.{0}\\.{0}", kOctet); }

// Returns a pattern for IPv6 addresses (RFC 4291). An address has eight groups, and "::" stands for one or more groups
// of zeros.
std::string ipv6() {
  constexpr std::string_view kGroup = "[0-9a-fA-F]{1,4}";
  const std::string tail = fmt::format("(?:{0}:{0}|{1})", kGroup, ipv4());
  std::string out = fmt::format("(?:(?:{0}:){{6}}{1}|::(?:{0}:){{5}}{1}|(?:{0})?::(?:{0}:){{4}}{1}", kGroup, tail);
  for (int before = 1; before <= 4; ++before) {
    out += fmt::format("|(?:(?:{0}:){{0,{1}}}{0})?::(?:{0}:){{{2}}}{3}", kGroup, before, 4 - before, tail);
  }
  return out + fmt::format("|(?:(?:{0}:){{0,5}}{0})?::{0}|(?:(?:{0}:){{0,6}}{0})?::)", kGroup);
}

std::string hostname() { return fmt::format("(?:{0}\\.){{0,3}}{1}", kLabel, kLastLabel); }
// Returns a pattern for the host of a generic URI. A host may have any length (RFC 3986). The pattern has no bounded
// repetitions such as "{0,58}", so its automaton is small.
std::string uri_host() { return "(?:[a-zA-Z0-9]+(?:-+[a-zA-Z0-9]+)*\\.)*[a-zA-Z][a-zA-Z0-9]*(?:-+[a-zA-Z0-9]+)*"; }
std::string domain() { return fmt::format("(?:{0}\\.){{1,2}}{1}", kLabel, kLastLabel); }
std::string email() { return fmt::format("{0}(?:\\.{0}){{0,1}}@{1}", kAtom, domain()); }
std::string query_and_fragment() { return fmt::format("(?:\\?{0}*)?(?:#{0}*)?", kQueryCharacter); }
std::string uri() {
  return fmt::format("[a-zA-Z][a-zA-Z0-9+.-]{{0,15}}:(?://{0}(?::[0-9]{{1,4}})?(?:/{1}*)*|{1}+(?:/{1}*)*){2}",
                     uri_host(), kPathCharacter, query_and_fragment());
}
std::string uri_reference() {
  return fmt::format("(?:{0}|/(?:{1}+(?:/{1}*)*)?{2})", uri(), kPathCharacter, query_and_fragment());
}

struct NamedTerm {
  std::string_view name;
  TextTerm term;
};

Result<std::vector<NamedTerm>> parse_formats() {
  struct Format {
    std::string_view name;
    std::string pattern;
    bool loose;
  };
  const std::array<Format, 20> formats = {{
      {"date", std::string(kDate), false},
      {"time", std::string(kTime), true},
      {"date-time", fmt::format("{}T{}", kDate, kTime), true},
      {"duration", std::string(kDuration), true},
      {"ipv4", ipv4(), false},
      {"ipv6", ipv6(), false},
      {"uuid", std::string(kUuid), false},
      {"email", email(), true},
      {"idn-email", email(), true},
      {"hostname", hostname(), true},
      {"idn-hostname", hostname(), true},
      {"uri", uri(), true},
      {"iri", uri(), true},
      {"url", uri(), true},  // "url" is common, but not in the standard
      {"uri-reference", uri_reference(), true},
      {"iri-reference", uri_reference(), true},
      {"json-pointer", std::string(kJsonPointer), false},
      {"regex", regex(), true},
      {"uri-template", std::string(kUriTemplate), true},
      {"relative-json-pointer", fmt::format("(?:0|[1-9][0-9]{{0,3}})(?:#|{})", kJsonPointer), true},
  }};
  std::vector<NamedTerm> out;
  for (const Format& format : formats) {
    Regex regex = make_whole(TRY(parse_regex(format.pattern)));
    out.push_back({format.name, {.regex = std::move(regex), .loose = format.loose}});
  }
  return out;
}

}  // namespace

Result<std::optional<TextTerm>> format_term(std::string_view name) {
  // All schemas share one parsed copy of the formats, because the trees of their regexes are large.
  static const Result<std::vector<NamedTerm>> formats = parse_formats();
  if (!formats.ok()) return formats.status();
  for (const NamedTerm& format : *formats) {
    if (format.name == name) return std::optional(format.term);
  }
  return std::optional<TextTerm>();
}

}  // namespace tessera::schema
