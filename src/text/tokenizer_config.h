// tokenizer_config.json and chat_template.jinja beside a model's tokenizer.json: which tokens begin
// and end a text, and how a conversation is written.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera {

struct TokenizerConfig {
  struct NamedTemplate {
    std::string name;  // "default", "tool_use", "rag", …
    std::string source;
  };

  std::string bos_token;  // "" where the file has none
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::optional<bool> add_bos_token;  // unset where the file does not say
  std::optional<bool> add_eos_token;
  // What a SentencePiece file beside it is read with:
  std::optional<bool> legacy;  // a space behind each added token too
  Json added_tokens;           // added_tokens_decoder: an object of id: token; null where the file has none
  std::vector<NamedTemplate> chat_templates;  // a single template is named "default"

  // Reads `directory`/tokenizer_config.json, then `directory`/chat_template.jinja, which replaces the
  // template "default". A file that does not exist is no error and leaves the fields empty; a
  // malformed one is invalid_argument naming file, field and value.
  static Result<TokenizerConfig> load(const std::string& directory);

  // The source, or null. It lives as long as this object.
  const std::string* find_template(std::string_view name = "default") const;
};

}  // namespace tessera
