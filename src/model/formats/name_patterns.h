// Matches module names against the patterns in quantisation settings. A pattern is a name, a glob or a regular
// expression. Here is each kind of pattern, with the modules that it matches:
//
//   "lm_head", "mlp.gate"         all modules whose names end in these words, and everything inside them. "mlp.gate"
//                                 means "model.layers.3.mlp.gate", but not "model.layers.3.mlp.gate_proj".
//   "model.layers.3.mlp"          a name from the root: the module and everything inside it
//   "model.layers.*.self_attn*"   a glob, in which * matches any characters: every module whose name it matches, and
//                                 everything inside these modules
//   "re:.*mlp[.]gate$"            a regular expression, which matches from the start of the name
//
// The prefixes "model.", "language_model.", "model.language_model." and "language_model.model." are treated as equal,
// because settings may use another prefix than the tensors.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Immutable and thread-safe after all patterns are added.
class NamePatterns {
 public:
  // Adds a pattern. If a regular expression does not compile, the error says why.
  Status add(std::string_view pattern);
  // Returns whether a pattern matches the module or a module that contains it. Returns resource_exhausted if a regular
  // expression exceeds its limit of steps on this name.
  Result<bool> matches(std::string_view module) const;
  bool empty() const { return rooted_.empty() && anywhere_.empty() && globs_.empty() && regexes_.empty(); }

 private:
  struct Regex;
  std::unordered_set<std::string> rooted_;  // names from the root, without their prefixes
  std::vector<std::string> anywhere_;
  std::vector<std::string> globs_;
  std::vector<std::shared_ptr<const Regex>> regexes_;
};

}  // namespace tessera
