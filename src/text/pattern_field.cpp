#include "tessera/text/pattern_field.h"

namespace tessera {

Result<SplitPattern> make_pattern(const Field& field) {
  const Field text = field.member("String");
  if (!text.absent()) {
    std::string literal = TRY(text.string());
    if (literal.empty()) return text.invalid("accepted: a string that is not empty");
    return SplitPattern::literal(std::move(literal));
  }
  const Field regex = field.member("Regex");
  if (regex.absent()) return field.invalid("accepted: {\"String\": …} or {\"Regex\": …}");
  Result<SplitPattern> pattern = SplitPattern::compile(TRY(regex.string()));
  if (!pattern.ok()) return regex.invalid(pattern.status().message());
  return pattern;
}

}  // namespace tessera
