#include "tessera/engine/grammar/grammar_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/text/byte_alphabet.h"
#include "tessera/text/tokenizer.h"

namespace tessera {
namespace {

constexpr std::string_view kSentencePieceSpace = "\xE2\x96\x81";  // "▁"

// Returns the byte of a SentencePiece token such as "<0x0A>"; nothing for other tokens.
std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

std::string sentencepiece_bytes(std::string_view token) {
  if (const std::optional<char> byte = fallback_byte(token)) return {*byte};
  std::string bytes;
  while (!token.empty()) {
    const std::size_t space = token.find(kSentencePieceSpace);
    bytes += token.substr(0, space);
    if (space == std::string_view::npos) break;
    bytes += ' ';
    token.remove_prefix(space + kSentencePieceSpace.size());
  }
  return bytes;
}

std::string byte_level_bytes(std::string_view token) {
  std::string bytes;
  append_bytes(bytes, token);
  return bytes;
}

}  // namespace

Result<GrammarVocabulary> GrammarVocabulary::create(const Tokenizer& tokenizer, std::int64_t vocab_size,
                                                    std::span<const TokenId> end_ids) {
  if (vocab_size <= 0 || vocab_size > std::numeric_limits<std::int32_t>::max())
    return invalid_argument(fmt::format("a vocabulary of {} tokens", vocab_size));
  const bool byte_level = tokenizer.token_to_id(byte_to_symbol(' ')).has_value();
  GrammarVocabulary vocabulary;
  vocabulary.bytes.resize(static_cast<std::size_t>(std::min(tokenizer.vocab_size(), vocab_size)));
  vocabulary.allowed.resize(static_cast<std::size_t>(GrammarMatcher::mask_words(vocab_size)));
  const auto allow = [&](std::size_t id) { vocabulary.allowed[id / 32] |= 1u << (id % 32); };
  for (std::size_t i = 0; i < vocabulary.bytes.size(); ++i) {
    const TokenId id(static_cast<std::int32_t>(i));
    const std::optional<std::string_view> token = tokenizer.id_to_token(id);
    if (!token || token->empty() || tokenizer.is_special(id)) continue;
    vocabulary.bytes[i] = byte_level ? byte_level_bytes(*token) : sentencepiece_bytes(*token);
    allow(i);
  }
  for (const TokenId id : end_ids) {
    if (id.value() < 0 || id.value() >= vocab_size)
      return invalid_argument(fmt::format("end token {} is not in [0, {})", id.value(), vocab_size));
    vocabulary.end_ids.push_back(id);
    allow(id.index());
  }
  return vocabulary;
}

}  // namespace tessera
