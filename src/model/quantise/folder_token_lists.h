// Converts the tokenizer of a model folder to lists of tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/text/lists/token_lists.h"

namespace tessera {

// The memory from which TokenLists borrow.
struct FolderTokenLists {
  std::string file;   // the tokenizer's file
  std::string model;  // tokenizer.ggml.model: "gpt2", "llama" or "gemma4"
  std::string pre;    // tokenizer.ggml.pre; empty for "gemma4", whose files do not have this key
  std::vector<std::string> tokens;
  std::vector<TokenKind> kinds;
  std::vector<std::string> merges;  // not for "llama"
  std::vector<float> scores;        // only for "llama"
  std::int64_t left_out = 0;  // number of tokens that were left out because the embeddings have no row for their id
};

// Returns config.vocab_size tokens. An id without a token gets a placeholder name and is marked as unused, as in other
// converters. The result's `model` is "gpt2" for a byte-level tokenizer.json, and "llama" for a tokenizer.model. It is
// also "llama" for a tokenizer.json that was made from a tokenizer.model (byte-pair encoding of characters with
// fallback to bytes). In this case a token's score follows from the position of its first merge. Gemma 4's
// tokenizer.json is of this kind too, but its files list the merges themselves, and `model` is "gemma4". Returns
// not_found if the folder has neither file. Returns unimplemented for other kinds of tokenizers, with a message that
// names the kind.
Result<FolderTokenLists> read_folder_token_lists(const std::string& folder, const ModelConfig& config);

}  // namespace tessera
