// Reads tokenizer_config.json and the chat template's own file beside a model's tokenizer.json: the tokens that begin
// and end a text, and the format of a conversation.
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

  std::string bos_token;  // "" if the file has none
  std::string eos_token;
  std::string pad_token;
  std::string unk_token;
  std::optional<bool> add_bos_token;  // unset if the file does not say
  std::optional<bool> add_eos_token;
  // `legacy` and `added_tokens` are settings for reading a SentencePiece file in the same folder.
  std::optional<bool> legacy;                 // if true or unset, a space is also put after each added token
  Json added_tokens;                          // added_tokens_decoder: an object of id: token; null if the file has none
  std::vector<NamedTemplate> chat_templates;  // a single template is named "default"

  // Reads tokenizer_config.json in `directory`. Then reads chat_template.jinja or, if that is missing,
  // chat_template.json. A template of one of these two files replaces the template of the same name in
  // tokenizer_config.json. A missing file is not an error and leaves the fields empty. Returns invalid_argument for a
  // malformed file. The message names the file, the field and the value.
  static Result<TokenizerConfig> load(const std::string& directory);

  // Returns the template's source, valid as long as this object; null if there is none.
  const std::string* find_template(std::string_view name = "default") const;
};

}  // namespace tessera
