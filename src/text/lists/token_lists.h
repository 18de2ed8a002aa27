// A tokenizer as lists of tokens, as GGUF files have it.
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
  kControl = 3,      // special: a text gives it only if special tokens are parsed
  kUserDefined = 4,  // always found in a text
  kUnused = 5,
  kByte = 6,  // "<0x0A>"
};

// Borrows the texts, for as long as a tokenizer is made of them.
struct TokenLists {
  std::string file;   // for errors
  std::string model;  // "gpt2" and "gemma4": byte-pair encoding with merges; "llama": SentencePiece's, with scores
  std::string pre;    // how texts are cut before merging: "qwen2", "llama-bpe", …; not used for "llama"
  std::vector<std::string_view> tokens;  // by id
  std::vector<TokenKind> kinds;          // as many; or none, and all are normal
  std::vector<std::string_view> merges;  // "left right", in order of rank
  std::vector<float> scores;             // as many as tokens
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  // Absent ones are as for most models of that kind.
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
};

}  // namespace tessera
