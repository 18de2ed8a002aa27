#include "tessera/engine/schema/compile.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/json.h"
#include "tessera/engine/schema/ebnf.h"
#include "tessera/engine/schema/grammar_limits.h"
#include "tessera/engine/schema/grammar_writer.h"
#include "tessera/engine/schema/regex.h"
#include "tessera/engine/schema/schema_index.h"
#include "tessera/engine/schema/settled_types.h"
#include "tessera/engine/schema/type_table.h"

namespace tessera::schema {
namespace {

Status check_depth(const Json& value, int depth) {
  if (depth > kMaxGrammarDepth)
    return invalid_argument(fmt::format("it is nested deeper than {} levels", kMaxGrammarDepth));
  if (value.is_array()) {
    for (const Json& item : value.as_array()) TRY(check_depth(item, depth + 1));
  } else if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) TRY(check_depth(member, depth + 1));
  }
  return ok_status();
}

bool only_blanks(const Regex& regex) {
  static const CharSet blanks = CharSet::any_of(" \t\r\n");
  if (regex->kind == RegexNode::Kind::kClass) return !regex->narrow.empty() && (regex->narrow - blanks).empty();
  return std::ranges::all_of(regex->parts, only_blanks);
}

// Returns an EBNF expression for a regex that matches only blanks. Unlike in JSON strings, no character is escaped.
std::string blanks(const Regex& regex) {
  std::vector<std::string> parts;
  for (const Regex& part : regex->parts) parts.push_back(blanks(part));
  switch (regex->kind) {
    case RegexNode::Kind::kClass: return ebnf_class(regex->narrow);
    case RegexNode::Kind::kChoice: return ebnf_choice(parts);
    case RegexNode::Kind::kRepeat:
      return ebnf_repeat(parts.front(), std::min(regex->min, kMaxJsonWhitespace),
                         regex->max < 0 ? kMaxJsonWhitespace : std::min(regex->max, kMaxJsonWhitespace));
    default: return parts.empty() ? "\"\"" : fmt::format("({})", fmt::join(parts, " "));
  }
}

}  // namespace

Result<std::string> compile_schema(std::string_view schema, std::string_view blank) {
  const Json root = TRY(Json::parse(schema, "it"));
  if (!root.is_object() && !root.is_bool()) {
    return invalid_argument(fmt::format("it is {}; an object or true is accepted", root.type_name()));
  }
  TRY(check_depth(root, 0));
  const SchemaIndex index = TRY(SchemaIndex::create(root));
  TypeTable table(index);
  const TypeId type = TRY(table.type_of({&root}));
  SettledTypes types = TRY(SettledTypes::create(table, type));
  if (!types.possible(type)) return invalid_argument("#: it cannot accept any value that ends");
  return GrammarWriter(table, types, std::string(blank)).write(type);
}

Result<std::string> blank_ebnf(std::string_view pattern) {
  const Regex regex = TRY(parse_regex(pattern));
  if (has_anchor(regex) || !only_blanks(regex)) {
    return invalid_argument(fmt::format(
        "\"{}\" is no pattern of blanks; accepted: a regular expression of \" \", \"\\t\", \"\\r\" and \"\\n\", "
        "such as \"[\\n\\t ]*\"",
        pattern));
  }
  return blanks(regex);
}

}  // namespace tessera::schema
