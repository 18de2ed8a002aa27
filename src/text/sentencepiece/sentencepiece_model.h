// Implements the model of a SentencePiece file (".model" of Llama 2, Mistral, Gemma, T5, …). libsentencepiece parses
// the file and splits text into tokens. This class itself normalises texts and adds the leading space. It can therefore
// check bounds when it looks up the file's table of replacements, and can leave out the space after an added token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/text/sentencepiece/charsmap.h"
#include "tessera/text/token_model.h"

namespace tessera {

class SentencePieceModel : public TokenModel {
 public:
  // The places that get a leading space, if the file asks for one.
  enum class Prefix {
    kEveryText,  // at the beginning and after each added token ("legacy" in Hugging Face)
    kFirstText,  // at the beginning only
  };

  // Parses a file. `name` identifies it in errors. Returns invalid_argument if it is not a SentencePiece model, and
  // unimplemented for spaces after words (treat_whitespace_as_suffix).
  static Result<std::unique_ptr<SentencePieceModel>> parse(std::string_view bytes, const std::string& name,
                                                           Prefix prefix);
  ~SentencePieceModel() override;

  Status encode(const Pieces& pieces, std::vector<TokenId>& out) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  bool adds_prefix() const { return add_prefix_; }
  // Returns the control tokens and the unknown token ("<s>", "</s>", "[INST]", "<unk>", …). They are matched as added
  // tokens, because the library itself never returns a control token for a text.
  const std::vector<TokenId>& control_tokens() const { return control_tokens_; }
  std::optional<TokenId> begin_token() const { return begin_; }  // the token that begins a text
  std::optional<TokenId> end_token() const { return end_; }

 private:
  struct Processor;
  SentencePieceModel();
  Status load(const std::string& bytes, const std::string& name);
  std::string normalize(std::string_view text, bool prefix) const;

  std::unique_ptr<Processor> processor_;
  std::optional<Charsmap> charsmap_;
  Vocabulary vocabulary_;
  std::vector<TokenId> control_tokens_;
  std::optional<TokenId> begin_;
  std::optional<TokenId> end_;
  Prefix prefix_ = Prefix::kEveryText;
  bool add_prefix_ = true;
  bool remove_extra_spaces_ = true;
};

}  // namespace tessera
