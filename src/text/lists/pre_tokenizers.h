// The ways of cutting texts that GGUF files know by name ("tokenizer.ggml.pre").
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

// The members of a tokenizer.json that a name stands for, as the model for which the name was made has them.
struct NamedPreTokenizer {
  Json normalizer;             // null: none
  Json pre_tokenizer;          // cuts, and replaces bytes by their symbols
  bool ignore_merges = false;  // a piece that is a token is that token, whatever merges make of it
  bool add_bos = false;        // if the file does not say
};

// Finds a name. Returns false for one that is not known.
bool find_pre_tokenizer(std::string_view name, NamedPreTokenizer& found);
// Returns the name that cuts texts as a tokenizer.json with these members; nothing if there is none. `ignore_merges` is
// a member of its model.
std::optional<std::string> name_pre_tokenizer(const Json& normalizer, const Json& pre_tokenizer, bool ignore_merges);
// Returns all known names, for messages.
std::string pre_tokenizer_names();

}  // namespace tessera
