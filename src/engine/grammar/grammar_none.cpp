// A build without xgrammar, which refuses every grammar.
#include "tessera/engine/grammar/grammar.h"

namespace tessera {

class Grammar {};
std::int64_t grammar_bytes(const Grammar&) { return 0; }
struct GrammarCompiler::Impl {};
struct GrammarMatcher::Impl {};

GrammarCompiler::GrammarCompiler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrammarCompiler::~GrammarCompiler() = default;

bool GrammarCompiler::available() { return false; }

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::create(const Tokenizer&, std::int64_t,
                                                                 std::span<const TokenId>, const GrammarOptions&) {
  return std::unique_ptr<GrammarCompiler>(new GrammarCompiler(nullptr));
}

void GrammarCompiler::keep_at_most(std::size_t) {}

std::shared_ptr<const Grammar> GrammarCompiler::find(const GrammarSpec&) const { return nullptr; }

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSpec&) {
  return unimplemented(
      "this build has no constrained output (JSON schema, regex, EBNF): xgrammar was not there when it was built; "
      "build it where Python's pip reaches PyPI");
}

// These functions are unreachable, because no Grammar exists in this build.
GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar>) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;
void GrammarMatcher::fill_mask(std::span<std::uint32_t>) {}
void GrammarMatcher::fill_masks(std::span<const TokenId>, std::span<std::uint32_t>) {}
bool GrammarMatcher::allows(TokenId) const { return true; }
Status GrammarMatcher::accept(TokenId) { return internal_error("a grammar in a build without grammars"); }
Status GrammarMatcher::status() const { return ok_status(); }
bool GrammarMatcher::finished() const { return true; }

}  // namespace tessera
