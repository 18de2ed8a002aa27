#include "tessera/engine/grammar/grammar.h"

#include <fmt/format.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <array>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/engine/grammar/grammar_vocabulary.h"
#include "tessera/engine/grammar/grammar_watch.h"
#include "tessera/engine/schema/compile.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// Words of those xgrammar warnings that leave the grammar's meaning unchanged. Any other warning is an error.
constexpr std::array<std::string_view, 2> kHarmless = {"The character itself will be matched", "character literally"};
constexpr std::size_t kKeptGrammars = 32;

std::string_view kind_name(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonObject: return "JSON object";
    case GrammarSpec::Kind::kJsonSchema: return "JSON schema";
    case GrammarSpec::Kind::kRegex: return "regex";
    case GrammarSpec::Kind::kEbnf: return "EBNF grammar";
  }
  return "grammar";
}

}  // namespace

class Grammar {
 public:
  Grammar(xgrammar::CompiledGrammar compiled, std::shared_ptr<const GrammarVocabulary> vocabulary)
      : compiled_(std::move(compiled)), vocabulary_(std::move(vocabulary)), bytes_(compiled_.MemorySizeBytes()) {}

  const xgrammar::CompiledGrammar& compiled() const { return compiled_; }
  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  std::size_t bytes() const { return bytes_; }

 private:
  xgrammar::CompiledGrammar compiled_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::size_t bytes_;  // a stored result, because counting walks over all masks
};

std::int64_t grammar_bytes(const Grammar& grammar) { return static_cast<std::int64_t>(grammar.bytes()); }

// ---- GrammarMatcher

struct GrammarMatcher::Impl {
  std::shared_ptr<const Grammar> grammar;
  xgrammar::GrammarMatcher matcher{xgrammar::NullObj()};
  Status failed;                      // the first error of a call; every later call returns it
  bool mask_valid = false;            // `mask` belongs to the text's current position
  std::vector<std::uint32_t> mask{};  // [mask_words]

  const GrammarVocabulary& vocabulary() const { return grammar->vocabulary(); }

  Status start() {
    GrammarWatch watch(kMaxMaskSeconds);
    return watch.run([&] {
      matcher = xgrammar::GrammarMatcher(grammar->compiled());
      return ok_status();
    });
  }

  void refresh_mask() {
    if (mask_valid) return;
    mask.assign(vocabulary().allowed.size(), 0);
    mask_valid = true;
    if (!failed.ok()) return allow_ends();
    GrammarWatch watch(kMaxMaskSeconds);
    failed = watch.run([&]() -> Status {
      if (matcher.IsTerminated()) {
        allow_ends();
        return ok_status();
      }
      auto shape = static_cast<std::int64_t>(mask.size());
      DLTensor tensor{mask.data(), {kDLCPU, 0}, 1, xgrammar::GetBitmaskDLType(), &shape, nullptr, 0};
      matcher.FillNextTokenBitmask(&tensor);
      for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= vocabulary().allowed[i];
      const bool stuck = std::ranges::all_of(mask, [](std::uint32_t word) { return word == 0; });
      if (stuck && !matcher.IsCompleted()) return invalid_argument("it leaves no token that could come next");
      return ok_status();
    });
    if (!failed.ok()) {
      failed = std::move(failed).with_context("the grammar of this request");
      std::ranges::fill(mask, 0);
      allow_ends();
    }
  }

  void allow_ends() {
    for (const TokenId id : vocabulary().end_ids) mask[id.index() / 32] |= 1u << (id.index() % 32);
  }

  bool only_ends() const {
    std::vector<std::uint32_t> rest = mask;
    for (const TokenId id : vocabulary().end_ids) rest[id.index() / 32] &= ~(1u << (id.index() % 32));
    return std::ranges::all_of(rest, [](std::uint32_t word) { return word == 0; });
  }
};

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar) : impl_(std::make_unique<Impl>()) {
  impl_->grammar = std::move(grammar);
  impl_->failed = impl_->start();
}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

void GrammarMatcher::fill_mask(std::span<std::uint32_t> mask) {
  impl_->refresh_mask();
  std::ranges::copy(impl_->mask, mask.begin());
}

void GrammarMatcher::fill_masks(std::span<const TokenId> drafts, std::span<std::uint32_t> masks) {
  const std::size_t words = masks.size() / (drafts.size() + 1);
  fill_mask(masks.first(words));
  Impl& impl = *impl_;
  if (!impl.failed.ok()) {
    std::ranges::fill(masks.subspan(words), ~std::uint32_t{0});
    return;
  }
  std::vector<std::uint32_t> mask = impl.mask;
  int taken = 0;
  for (std::size_t i = 0; i < drafts.size(); ++i) {
    if (!allows(drafts[i]) || !accept(drafts[i]).ok()) {
      std::ranges::fill(masks.subspan((i + 1) * words), ~std::uint32_t{0});
      break;
    }
    ++taken;
    fill_mask(masks.subspan((i + 1) * words, words));
  }
  impl.matcher.Rollback(taken);
  impl.failed = ok_status();  // the error matters only if the draft is kept; accept() then fails too
  impl.mask = std::move(mask);
  impl.mask_valid = true;
}

bool GrammarMatcher::allows(TokenId token) const {
  impl_->refresh_mask();
  return token.index() / 32 < impl_->mask.size() && (impl_->mask[token.index() / 32] >> (token.index() % 32) & 1) != 0;
}

Status GrammarMatcher::accept(TokenId token) {
  Impl& impl = *impl_;
  TRY(Status(impl.failed));
  impl.mask_valid = false;
  GrammarWatch watch(kMaxMaskSeconds);
  bool accepted = false;
  impl.failed = watch.run([&] {
    accepted =
        impl.vocabulary().allows(token) && !impl.matcher.IsTerminated() && impl.matcher.AcceptToken(token.value());
    return ok_status();
  });
  if (!impl.failed.ok()) {
    impl.failed = std::move(impl.failed).with_context("the grammar of this request");
  } else if (!accepted) {
    impl.failed =
        internal_error(fmt::format("token {} is not one that the request's grammar allows here", token.value()));
  }
  return impl.failed;
}

Status GrammarMatcher::status() const { return impl_->failed; }

bool GrammarMatcher::finished() const {
  Impl& impl = *impl_;
  if (!impl.failed.ok()) return false;
  if (impl.matcher.IsTerminated()) return true;
  if (!impl.matcher.IsCompleted()) return false;
  impl.refresh_mask();
  return impl.failed.ok() && impl.only_ends();
}

// ---- GrammarCompiler

struct GrammarCompiler::Impl {
  struct Kept {
    GrammarSpec spec;
    std::shared_ptr<const Grammar> grammar;
  };

  Impl(std::shared_ptr<const GrammarVocabulary> words, const xgrammar::TokenizerInfo& info, std::string blank_text)
      : vocabulary(std::move(words)),
        blank(std::move(blank_text)),
        compiler(info, /*max_threads=*/1, /*cache_enabled=*/false) {}

  std::shared_ptr<const GrammarVocabulary> vocabulary;
  std::string blank;                          // EBNF expression for the blanks between JSON's tokens
  xgrammar::GrammarCompiler compiler;         // has no state, because its cache is off, so threads may share it
  std::size_t most_kept = kMaxGrammarMemory;  // maximum bytes of `kept`
  std::mutex mutex;
  std::list<Kept> kept;  // most recently used first; guarded by `mutex`

  std::shared_ptr<const Grammar> find(const GrammarSpec& spec) {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(
        kept, [&](const Kept& entry) { return entry.spec.kind == spec.kind && entry.spec.text == spec.text; });
    if (found == kept.end()) return nullptr;
    kept.splice(kept.begin(), kept, found);
    return found->grammar;
  }

  void keep(const GrammarSpec& spec, std::shared_ptr<const Grammar> grammar) {
    const std::lock_guard lock(mutex);
    kept.push_front({spec, std::move(grammar)});
    std::size_t bytes = 0;
    std::size_t count = 0;
    for (auto entry = kept.begin(); entry != kept.end(); ++entry) {
      bytes += entry->grammar->bytes() + entry->spec.text.size();
      ++count;
      if (count > kKeptGrammars || bytes > most_kept) {
        kept.erase(entry, kept.end());
        return;
      }
    }
  }

  static Status check_text(const GrammarSpec& spec) {
    const std::string& text = spec.text;
    const bool schema = spec.kind == GrammarSpec::Kind::kJsonSchema;
    const std::size_t most = schema ? kMaxGrammarBytes : kMaxPatternBytes;
    if (text.size() > most)
      return invalid_argument(fmt::format("it has {} bytes; up to {} are accepted", text.size(), most));
    if (const std::size_t offset = find_invalid_utf8(text); offset != std::string::npos)
      return invalid_argument(fmt::format("byte {} is not UTF-8", offset));
    if (const std::size_t offset = text.find('\0'); offset != std::string::npos)
      return invalid_argument(fmt::format("byte {} is NUL, which is not accepted", offset));
    if (spec.kind == GrammarSpec::Kind::kRegex && text.empty()) return invalid_argument("it is empty");
    return ok_status();
  }

  // Returns the EBNF or regex that xgrammar compiles. For JSON grammars this is EBNF.
  Result<std::string> grammar_text(const GrammarSpec& spec) const {
    switch (spec.kind) {
      case GrammarSpec::Kind::kJsonObject: return schema::compile_schema(R"({"type": "object"})", blank);
      case GrammarSpec::Kind::kJsonSchema: return schema::compile_schema(spec.text, blank);
      default: return spec.text;
    }
  }

  static Status check_warnings(const std::vector<std::string>& warnings) {
    for (const std::string& warning : warnings) {
      const bool harmless = std::ranges::any_of(
          kHarmless, [&](std::string_view words) { return warning.find(words) != std::string::npos; });
      if (!harmless) return unimplemented(warning);
    }
    return ok_status();
  }

  Result<std::shared_ptr<const Grammar>> compile(const GrammarSpec& spec) {
    TRY(check_text(spec));
    GrammarWatch watch(kMaxCompileSeconds);
    const std::string text = TRY(grammar_text(spec));
    std::shared_ptr<const Grammar> grammar;
    TRY(watch.run([&]() -> Status {
      const xgrammar::Grammar parsed = spec.kind == GrammarSpec::Kind::kRegex ? xgrammar::Grammar::FromRegex(text)
                                                                              : xgrammar::Grammar::FromEBNF(text);
      TRY(check_warnings(watch.warnings()));
      const std::string rules = parsed.ToString();  // has one rule on each line
      const auto count = static_cast<std::size_t>(std::ranges::count(rules, '\n'));
      if (count > kMaxGrammarRules)
        return invalid_argument(fmt::format("it comes to {} rules; up to {} are accepted", count, kMaxGrammarRules));
      grammar = std::make_shared<const Grammar>(compiler.CompileGrammar(parsed), vocabulary);
      return ok_status();
    }));
    if (grammar->bytes() > kMaxGrammarMemory) {
      return invalid_argument(
          fmt::format("it takes {} bytes; up to {} are accepted", grammar->bytes(), kMaxGrammarMemory));
    }
    // Computes a first mask, so that a grammar that no text satisfies, or whose masks take too long, is refused here
    // and not in a request's first step.
    GrammarMatcher matcher(grammar);
    std::vector<std::uint32_t> mask(vocabulary->allowed.size());
    matcher.fill_mask(mask);
    TRY(Status(matcher.impl_->failed));
    return grammar;
  }
};

GrammarCompiler::GrammarCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::available() { return true; }

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::create(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                                                 std::span<const TokenId> end_ids,
                                                                 const GrammarOptions& options) {
  std::string blank;
  if (!options.json_whitespace.empty()) {
    blank = TRY(schema::blank_ebnf(options.json_whitespace).with_context("JSON whitespace"));
  }
  auto vocabulary = std::make_shared<GrammarVocabulary>();
  *vocabulary = TRY(GrammarVocabulary::create(tokenizer, vocab_size, end_ids));
  std::vector<std::int32_t> ends;
  for (const TokenId id : end_ids) ends.push_back(id.value());
  std::unique_ptr<Impl> impl;
  GrammarWatch watch(kMaxCompileSeconds);
  TRY(watch
          .run([&] {
            const xgrammar::TokenizerInfo info(vocabulary->bytes, xgrammar::VocabType::RAW,
                                               static_cast<int>(vocab_size), ends);
            vocabulary->bytes = {};  // xgrammar keeps its own copy
            impl = std::make_unique<Impl>(std::move(vocabulary), info, std::move(blank));
            return ok_status();
          })
          .with_context("constrained output with this tokenizer"));
  return std::unique_ptr<GrammarCompiler>(new GrammarCompiler(std::move(impl)));
}

void GrammarCompiler::keep_at_most(std::size_t bytes) { impl_->most_kept = bytes; }

std::shared_ptr<const Grammar> GrammarCompiler::find(const GrammarSpec& spec) const { return impl_->find(spec); }

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSpec& spec) {
  if (std::shared_ptr<const Grammar> grammar = impl_->find(spec)) return grammar;
  Result<std::shared_ptr<const Grammar>> grammar = impl_->compile(spec);
  if (!grammar.ok()) return std::move(grammar).with_context(kind_name(spec.kind));
  impl_->keep(spec, *grammar);
  return grammar;
}

}  // namespace tessera
