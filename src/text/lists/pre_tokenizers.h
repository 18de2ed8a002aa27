// Defines the pre-tokenizers that GGUF files identify by name ("tokenizer.ggml.pre").
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

// A pre-tokenizer's settings as members of a tokenizer.json. Each name was made for one model. The settings equal those
// in this model's tokenizer.json.
struct NamedPreTokenizer {
  Json normalizer;             // null: none
  Json pre_tokenizer;          // splits the text, and replaces bytes by their symbols
  bool ignore_merges = false;  // a piece that is itself a token becomes that token without merging
  bool add_bos = false;        // applies if TokenLists::add_bos is unset
};

// Sets `found` to the pre-tokenizer with this name. Returns false for an unknown name.
bool find_pre_tokenizer(std::string_view name, NamedPreTokenizer& found);
// Returns the name of the pre-tokenizer that splits texts like a tokenizer.json with these members; nothing if there is
// no such name. `ignore_merges` is a member of that file's model.
std::optional<std::string> name_pre_tokenizer(const Json& normalizer, const Json& pre_tokenizer, bool ignore_merges);
// Returns all known names, for messages.
std::string pre_tokenizer_names();

}  // namespace tessera
