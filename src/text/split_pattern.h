// A regular expression of a tokenizer file, compiled once with PCRE2 (UTF, Unicode properties, JIT).
//
// The patterns in these files are written for Oniguruma. regex_dialect.h translates them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

struct TextRange {
  std::size_t begin;
  std::size_t end;
};

class SplitPattern {
 public:
  // Compiles a pattern. The error names the pattern and the reason.
  static Result<SplitPattern> compile(std::string_view regex);
  // Returns a pattern that matches `text` literally. Precondition: `text` is not empty.
  static SplitPattern literal(std::string text);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // Appends all non-overlapping matches in `text` to `out`, leftmost first, without empty matches. `text` must be
  // well-formed UTF-8. Returns resource_exhausted if PCRE2's backtracking limits are exceeded.
  Status find_all(std::string_view text, std::vector<TextRange>& out) const;

 private:
  struct Compiled;
  SplitPattern() = default;
  Status find_regex(std::string_view text, std::vector<TextRange>& out) const;
  std::string source_;
  std::unique_ptr<Compiled> compiled_;  // null if the pattern is a literal text
};

}  // namespace tessera
