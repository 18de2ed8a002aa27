// Takes the place of the sources of xgrammar that Tessera does not compile (grammar.cmake): its readers of JSON schemas,
// of Lark grammars and of structural tags. Tessera reads JSON schemas itself (src/engine/schema) and calls none of these
// functions; xgrammar's grammar.cc refers to them.
#include <stdexcept>

#include "json_schema_converter.h"
#include "lark_converter.h"
#include "structural_tag.h"

namespace xgrammar {

Grammar JSONSchemaToGrammar(const std::string&, bool, std::optional<int>,
                            std::optional<std::pair<std::string, std::string>>, bool, std::optional<int>, bool,
                            JSONFormat, std::vector<std::string>) {
  throw std::logic_error("xgrammar is built without JSON schemas");
}

Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  throw std::logic_error("xgrammar is built without Lark grammars");
}

Result<Grammar, StructuralTagError> StructuralTagToGrammar(const std::string&, const std::optional<TokenizerInfo>&) {
  throw std::logic_error("xgrammar is built without structural tags");
}

}  // namespace xgrammar
