// The lists of tokens that a folder's tokenizer amounts to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/lists/token_lists.h"

namespace tessera {

// Owns what TokenLists borrow.
struct FolderTokenLists {
  std::string file;   // the tokenizer's file
  std::string model;  // tokenizer.ggml.model: "gpt2" or "llama"
  std::string pre;    // tokenizer.ggml.pre
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  std::vector<std::string> merges;  // only for "gpt2"
  std::vector<float> scores;        // only for "llama"
  std::int64_t left_out = 0;        // tokens whose ids the embeddings do not have
};

// Returns `size` tokens; ids without a token get a name and are unused, as converters do. A byte-level tokenizer.json
// becomes "gpt2". A tokenizer.model, or else a tokenizer.json that was made from one (byte-pair encoding of characters
// with fallback to bytes), becomes "llama"; in the latter case a token's score is the rank of its first merge.
// not_found for a folder without either file; unimplemented, by name, for other kinds.
Result<FolderTokenLists> read_folder_token_lists(const std::string& folder, std::int64_t size);

}  // namespace tessera
