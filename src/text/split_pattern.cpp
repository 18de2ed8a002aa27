#include "tessera/text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "tessera/text/field.h"
#include "tessera/text/regex_dialect.h"

namespace tessera {
namespace {

using CodePtr = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchDataPtr = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "PCRE2 error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

Status refuse(std::string_view regex, const std::string& why) {
  return invalid_argument("pattern " + quote_for_error(regex) + " does not compile: " + why);
}

}  // namespace

struct SplitPattern::Compiled {
  CodePtr code{nullptr, &pcre2_code_free};
  bool jit = false;
};

SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

Result<SplitPattern> SplitPattern::compile(std::string_view regex) {
  Result<std::string> pattern = oniguruma_to_pcre2(regex);
  if (!pattern.ok()) return refuse(regex, pattern.status().message());
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE offset = 0;
  SplitPattern out;
  out.source_ = regex;
  out.compiled_ = std::make_unique<Compiled>();
  out.compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern->data()), pattern->size(), kOptions,
                                          &error, &offset, nullptr));
  if (out.compiled_->code == nullptr) return refuse(regex, pcre_message(error));
  // Without JIT (on a system that forbids executable pages), the interpreter finds the same matches, but more slowly.
  out.compiled_->jit = pcre2_jit_compile(out.compiled_->code.get(), PCRE2_JIT_COMPLETE) == 0;
  return out;
}

SplitPattern SplitPattern::literal(std::string text) {
  SplitPattern out;
  out.source_ = std::move(text);
  return out;
}

Status SplitPattern::find_all(std::string_view text, std::vector<TextRange>& out) const {
  if (compiled_ != nullptr) return find_regex(text, out);
  for (std::size_t pos = text.find(source_); pos != std::string_view::npos;
       pos = text.find(source_, pos + source_.size())) {
    out.push_back({pos, pos + source_.size()});
  }
  return ok_status();
}

Status SplitPattern::find_regex(std::string_view text, std::vector<TextRange>& out) const {
  pcre2_code* code = compiled_->code.get();
  const MatchDataPtr data(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  if (data == nullptr) return resource_exhausted("no memory for matching the split pattern");
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t pos = 0; pos < text.size();) {
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (compiled_->jit) rc = pcre2_jit_match(code, subject, text.size(), pos, 0, data.get(), nullptr);
    // The JIT's stack has only 32 KiB. If it overflows, the interpreter matches instead. The interpreter's stack is on
    // the heap. Neither the JIT code nor the interpreter checks whether the text is valid UTF-8. find_all() requires
    // valid UTF-8, and a check at each match would make the loop quadratic.
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), nullptr);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return resource_exhausted("matching pattern " + quote_for_error(source_) + " at byte " + std::to_string(pos) +
                                " of " + std::to_string(text.size()) + ": " + pcre_message(rc));
    }
    if (found[1] > found[0]) {
      out.push_back({found[0], found[1]});
      pos = found[1];
    } else {
      pos = std::max(pos, found[1]) + 1;  // after an empty match, continues after the next character
      while (pos < text.size() && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) ++pos;
    }
  }
  return ok_status();
}

}  // namespace tessera
