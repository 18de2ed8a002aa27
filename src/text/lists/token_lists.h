// Holds the lists of tokens that define a tokenizer in a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/strong_id.h"

namespace tessera {

// The kinds of tokens, with SentencePiece's numbers.
enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,      // stands for text that has no tokens
  kControl = 3,      // special: the tokenizer returns it only if special tokens are parsed
  kUserDefined = 4,  // matched in every text before the text is split
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

// The lists of one tokenizer. The texts are borrowed, and must stay valid until the tokenizer has been made.
struct TokenLists {
  std::string file;  // name of the file, for errors
  // "gpt2" and "gemma4" are byte-pair encoding with merges. "llama" is SentencePiece's byte-pair encoding with scores.
  std::string model;
  std::string pre;  // how texts are cut before merging: "qwen2", "llama-bpe", …; not used for "llama"
  std::vector<std::string_view> tokens;  // [id]: the text of each token
  std::vector<TokenKind> kinds;          // [id]; if empty, all tokens are kNormal
  std::vector<std::string_view> merges;  // "left right", in order of rank
  std::vector<float> scores;             // [id]: the score of each token
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  // If one of the three members below is unset, the default of most tokenizers with the same `model` applies.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

}  // namespace tessera
