// Catches: crashes, escaped exceptions and endless work on a client's JSON schema, regex or EBNF; token masks that
// allow a token which the grammar's accept() then refuses.
#include "tessera/engine/grammar/grammar.h"

#include <vector>

#include "fuzz.h"
#include "tessera/text/tokenizer.h"

using namespace tessera;

namespace {

constexpr std::int64_t kVocabSize = 2048;

GrammarCompiler& compiler() {
  static const std::unique_ptr<GrammarCompiler> made = [] {
    const auto tokenizer = Tokenizer::load(fuzz::source_path("models/demo/tokenizer.json"));
    const TokenId end = tokenizer->token_to_id("<|im_end|>").value();
    return GrammarCompiler::create(*tokenizer, kVocabSize, {&end, 1}).value();
  }();
  return *made;
}

// Takes a few steps: in each step the matcher accepts a token that its mask allows. The chosen tokens depend only on
// the input.
void walk(const std::shared_ptr<const Grammar>& grammar, std::size_t seed) {
  GrammarMatcher matcher(grammar);
  std::vector<std::uint32_t> mask(static_cast<std::size_t>(GrammarMatcher::mask_words(kVocabSize)));
  for (int step = 0; step < 12 && !matcher.finished(); ++step) {
    matcher.fill_mask(mask);
    std::vector<TokenId> allowed;
    for (std::int32_t i = 0; i < kVocabSize; ++i) {
      if ((mask[TokenId(i).index() / 32] >> (i % 32) & 1) != 0) allowed.emplace_back(i);
    }
    fuzz::require(!allowed.empty(), "a mask has a token while the text is not finished");
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const Status accepted = matcher.accept(allowed[(seed >> 33) % allowed.size()]);
    fuzz::require(accepted.code() != StatusCode::kInternal, "what the mask allows is accepted");
    if (!accepted.ok()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input = fuzz::as_text(data, size);
  constexpr GrammarSpec::Kind kKinds[] = {GrammarSpec::Kind::kJsonSchema, GrammarSpec::Kind::kRegex,
                                          GrammarSpec::Kind::kEbnf};
  const GrammarSpec::Kind kind = kKinds[fuzz::take_choice(input, 3)];
  const auto grammar = compiler().compile({kind, std::string(input)});
  if (grammar.ok()) walk(*grammar, size);
  return 0;
}
