// The lists of modules in quantisation settings: names, globs and regular expressions.
//
//   "lm_head", "mlp.gate"         this module wherever it stands, and what it contains: "model.layers.3.mlp.gate", but
//                                 not "mlp.gate_proj"
//   "model.layers.3.mlp"          a name from the top, and what it contains
//   "model.layers.*.self_attn*"   * stands for any characters; it matches a module or one that contains it
//   "re:.*mlp[.]gate$"            a regular expression that matches a beginning of the name
//
// The prefixes "model.", "model.language_model." and "language_model.model." are equivalent: settings may have one, and
// tensors another.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Immutable once it is filled, then thread-safe.
class NamePatterns {
 public:
  // Adds a pattern. The error says why a regular expression does not compile.
  Status add(std::string_view pattern);
  // Returns resource_exhausted if a regular expression exceeds its limit of steps on this name.
  Result<bool> matches(std::string_view module) const;
  bool empty() const { return rooted_.empty() && anywhere_.empty() && globs_.empty() && regexes_.empty(); }

 private:
  struct Regex;
  std::unordered_set<std::string> rooted_;  // without their prefixes
  std::vector<std::string> anywhere_;
  std::vector<std::string> globs_;
  std::vector<std::shared_ptr<const Regex>> regexes_;
};

}  // namespace tessera
