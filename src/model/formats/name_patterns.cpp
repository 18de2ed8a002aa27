#include "tessera/model/formats/name_patterns.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>

namespace tessera {
namespace {

constexpr std::string_view kPrefixes[] = {"model.language_model.", "language_model.model.", "language_model.",
                                          "model."};
constexpr std::string_view kRegexMark = "re:";
// The limit of pcre2's match steps. It is enough for any module name and any reasonable expression. A match that
// reaches the limit takes about a millisecond.
constexpr std::uint32_t kMaxSteps = 100'000;

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  return name;
}

// Calls `test` with the name, then with the names of the modules that contain it, innermost first. Returns true as soon
// as `test` does.
template <class Test>
bool any_container(std::string_view name, const Test& test) {
  while (true) {
    if (test(name)) return true;
    const std::size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return false;
    name = name.substr(0, dot);
  }
}

// Returns whether the words of `part` are consecutive words of `name`.
bool has_words(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) return true;
  }
  return false;
}

bool glob_matches(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (g < glob.size() && glob[g] == text[t]) {
      ++g;
      ++t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  if (pcre2_get_error_message(code, buffer.data(), buffer.size()) < 0) return "PCRE2 error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct NamePatterns::Regex {
  using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
  using Limits = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
  using Data = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
  std::string source;
  Code code{nullptr, &pcre2_code_free};
  Limits limits{nullptr, &pcre2_match_context_free};
  // Whether the expression is also tried on the name with other prefixes. False if the expression has a negative
  // lookahead or lookbehind, because a name that it excludes could match with another prefix.
  bool any_prefix = false;

  Result<bool> matches(std::string_view name) const {
    const Data data(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
    if (data == nullptr) return resource_exhausted("no memory to match a module's name");
    const int rc =
        pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data.get(), limits.get());
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) {
      return resource_exhausted("regular expression \"" + source + "\" on module \"" + std::string(name) +
                                "\": " + pcre2_message(rc));
    }
    return true;
  }
};

Status NamePatterns::add(std::string_view pattern) {
  if (pattern.starts_with(kRegexMark)) {
    auto regex = std::make_shared<Regex>();
    regex->source = pattern.substr(kRegexMark.size());
    int error = 0;
    PCRE2_SIZE offset = 0;
    regex->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(regex->source.data()), regex->source.size(),
                                    PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
    if (regex->code == nullptr) {
      return invalid_argument("\"" + std::string(pattern) + "\" is no regular expression: " + pcre2_message(error) +
                              " at byte " + std::to_string(offset + kRegexMark.size()));
    }
    pcre2_jit_compile(regex->code.get(), PCRE2_JIT_COMPLETE);  // if this fails, matching is slower
    regex->limits.reset(pcre2_match_context_create(nullptr));
    if (regex->limits == nullptr) return resource_exhausted("no memory for a regular expression");
    pcre2_set_match_limit(regex->limits.get(), kMaxSteps);
    regex->any_prefix =
        regex->source.find("(?!") == std::string::npos && regex->source.find("(?<!") == std::string::npos;
    regexes_.push_back(std::move(regex));
    return ok_status();
  }
  const std::string_view name = without_prefix(pattern);
  if (name.find('*') != std::string_view::npos) {
    globs_.emplace_back(name);
    return ok_status();
  }
  const std::size_t first = name.find_first_not_of('.');
  if (first == std::string_view::npos) return invalid_argument("a module has no name");
  const std::string words(name.substr(first, name.find_last_not_of('.') - first + 1));
  if (name.size() != pattern.size() || words.starts_with("layers.")) {
    rooted_.insert(words);
  } else {
    anywhere_.push_back(words);
  }
  return ok_status();
}

Result<bool> NamePatterns::matches(std::string_view module) const {
  const std::string_view name = without_prefix(module);
  if (!rooted_.empty() &&
      any_container(name, [&](std::string_view part) { return rooted_.contains(std::string(part)); }))
    return true;
  if (std::ranges::any_of(anywhere_, [&](const std::string& part) { return has_words(name, part); })) return true;
  for (const std::string& glob : globs_) {
    const auto test = [&](std::string_view part) { return glob_matches(glob, part); };
    if (any_container(name, test) || any_container(module, test)) return true;
  }
  for (const auto& regex : regexes_) {
    if (TRY(regex->matches(module))) return true;
    if (!regex->any_prefix || !name.starts_with("layers.")) continue;
    if (TRY(regex->matches(name))) return true;
    for (const std::string_view prefix : kPrefixes)
      if (TRY(regex->matches(std::string(prefix) + std::string(name)))) return true;
  }
  return false;
}

}  // namespace tessera
