// Converts text to token ids and back, as a model's tokenizer.json or SentencePiece file defines.
//
//   Tokenizer tokenizer = TRY(Tokenizer::load(model_dir));
//   std::vector<TokenId> ids = TRY(tokenizer.encode("Hello, world!"));
//   std::string text = tokenizer.decode(ids);
//
// Reads Hugging Face's tokenizer.json with a BPE model (byte-level as for Qwen, Llama 3, GPT-2, DeepSeek, …, or
// SentencePiece style with byte fallback as for Llama 2, Mistral, Gemma, …) or a Unigram model. The ids equal those of
// Hugging Face's library. The fields `truncation` and `padding` are not applied. A file "….model" is a SentencePiece
// model. It is read with the tokenizer_config.json and added_tokens.json beside it (sentencepiece_tokenizer.h), and the
// ids equal those of Hugging Face's Llama tokenizer.
//
// Threads: a Tokenizer never changes after load(), and all const functions may run at the same time. Ownership: it owns
// everything it needs, and the file may be removed after load(). Movable, not copyable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

class EncodedSpans;
class StreamDecoder;
struct TokenLists;
struct TokenizerParts;

struct EncodeOptions {
  // Adds the tokens that the file's post_processor puts around a text, such as a beginning-of-sequence token. Turn the
  // option off for text from a chat template, because the template writes these tokens itself.
  bool add_special_tokens = true;
  // Turns the text of a special token, such as "<|im_end|>", into that token. If false, such text is encoded as
  // ordinary text. Turn the option off for untrusted text outside a chat template. Added tokens that are not special
  // always match.
  bool parse_special = true;
  // A cache of the ids of texts between added tokens. encode() looks up texts in it and adds new texts. encode_pair()
  // ignores it. Use one cache for each tokenizer. The cache is borrowed for the call. If it is null, every text is
  // encoded.
  EncodedSpans* spans = nullptr;
};

class Tokenizer {
 public:
  // Loads a tokenizer. `path` is tokenizer.json, a file that ends in ".model", or a folder with tokenizer.json or else
  // tokenizer.model. Errors name the file, the field, the value and what is accepted. Returns not_found if there is no
  // such file, invalid_argument for malformed content, and unimplemented for a type that this engine does not support.
  // Cost: about 0.2 s for a vocabulary of 150 000 tokens.
  static Result<Tokenizer> load(const std::string& path);
  // Reads the file's text from memory; `name` identifies the file in errors.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  // Makes a tokenizer from lists of tokens (lists/token_lists.h). The lists may be destroyed afterwards. Returns
  // invalid_argument for wrong lists, and unimplemented for an unknown kind of tokenizer. The message names the file,
  // the list and the value.
  static Result<Tokenizer> create(const TokenLists& lists);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Encodes a text. Returns invalid_argument if `text` is not well-formed UTF-8 (the message gives the offset), is
  // longer than 1 GiB, or has a character that the model cannot encode. Returns resource_exhausted if the split pattern
  // needs more backtracking than PCRE2's limits.
  Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Returns whether the file's post_processor defines how two texts are joined.
  bool joins_pairs() const;
  // Encodes two texts as the post_processor joins them: "[CLS] first [SEP] second [SEP]". Errors are those of encode(),
  // and failed_precondition if joins_pairs() is false. Without special tokens, the ids of the second text follow
  // those of the first.
  Result<std::vector<TokenId>> encode_pair(std::string_view first, std::string_view second,
                                           const EncodeOptions& options = {}) const;

  // Returns the text of the ids. It is always well-formed UTF-8: bytes that form no character become U+FFFD. Ids
  // without a token (in a model's padded vocabulary) give no text. skip_special leaves out special tokens.
  std::string decode(std::span<const TokenId> ids, bool skip_special = true) const;

  std::optional<TokenId> token_to_id(std::string_view token) const;
  // Returns the token as the file writes it ("Ġthe", "▁the", "<0x0A>"). The view is valid as long as the tokenizer.
  std::optional<std::string_view> id_to_token(TokenId id) const;
  bool is_special(TokenId id) const;
  // Returns the greatest id + 1. A model's embedding may have more rows.
  std::int64_t vocab_size() const;

 private:
  friend class StreamDecoder;
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace tessera
