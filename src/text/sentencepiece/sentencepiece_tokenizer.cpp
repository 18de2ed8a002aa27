#include "tessera/text/sentencepiece/sentencepiece_tokenizer.h"

#include <charconv>
#include <filesystem>
#include <set>
#include <utility>

#include "tessera/base/lfs_pointer.h"
#include "tessera/text/sentencepiece/sentencepiece_model.h"
#include "tessera/text/tokenizer_config.h"
#include "tessera/text/tokenizer_json.h"

namespace tessera {
namespace {

constexpr const char* kDecoder = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]})";
constexpr const char* kDecoderStripping = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
  {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";

// Collects the added tokens of all sources in the form of tokenizer.json. If two have the same id, the first one
// remains.
class AddedList {
 public:
  void add(std::int64_t id, Json token) {
    if (!ids_.insert(id).second) return;
    token.set("id", id);
    list_.push_back(std::move(token));
  }

  // Adds tokens written as {"32000": {"content": "<x>", "special": true, …}}.
  Status add_decoder(const Field& field) {
    if (field.absent()) return ok_status();
    if (!field.json().is_object()) return field.invalid("accepted: an object of id: token");
    for (const auto& [key, value] : field.json().as_object()) {
      std::int64_t id = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size()) {
        return field.member(key).invalid("accepted: keys that are ids");
      }
      if (!value.is_object()) return field.member(key).invalid("accepted: an object with \"content\"");
      add(id, value);
    }
    return ok_status();
  }

  // Adds the tokens of a file of the form {"<x>": 32000}.
  Status add_file(const std::string& path) {
    std::error_code unreadable;
    if (!std::filesystem::exists(path, unreadable)) return ok_status();
    const Json json = TRY(Json::read_file(path));
    const Field field(path, "the document", &json);
    if (!json.is_object()) return field.invalid("accepted: an object of token: id");
    for (const auto& [content, value] : json.as_object()) {
      const std::int64_t id = TRY(field.member(content).integer());
      add(id, Json::object().set("content", content));
    }
    return ok_status();
  }

  const Json& list() const { return list_; }

 private:
  Json list_ = Json::array();
  std::set<std::int64_t> ids_;
};

// Returns the special token that begins or ends a text. This is the token `configured`, which tokenizer_config.json
// names, or else the model's own token `of_model`. Returns no token if `wanted` is false or neither of the two tokens
// exists. `key` is the member of tokenizer_config.json, for errors.
Result<std::vector<TokenId>> end_tokens(const TokenizerParts& parts, const char* key, bool wanted,
                                        const std::string& configured, std::optional<TokenId> of_model) {
  if (!wanted) return std::vector<TokenId>();
  if (configured.empty()) return of_model ? std::vector<TokenId>{*of_model} : std::vector<TokenId>();
  const std::optional<TokenId> id = parts.find(configured);
  if (!id) {
    return invalid_argument("tokenizer_config.json: " + std::string(key) + ": " + quote_for_error(configured) +
                            " is no token; accepted: a token of the model");
  }
  return std::vector<TokenId>{*id};
}

}  // namespace

Result<TokenizerParts> make_sentencepiece(std::string_view bytes, const std::string& name,
                                          SentencePieceModel::Prefix prefix, const Json& added) {
  std::unique_ptr<SentencePieceModel> model = TRY(SentencePieceModel::parse(bytes, name, prefix));
  AddedList list;
  for (const Json& token : added.as_array()) list.add(token.find("id")->as_int(), token);
  for (const TokenId id : model->control_tokens()) {
    list.add(id.value(), Json::object()
                             .set("content", *model->vocabulary().token(id.value()))
                             .set("special", true)
                             .set("normalized", false));
  }
  const Json decoder = TRY(Json::parse(model->adds_prefix() ? kDecoderStripping : kDecoder, "the decoder"));
  TokenizerParts parts;
  parts.added = TRY(AddedTokens::create(Field(name, "added_tokens", &list.list()), model->vocabulary(), nullptr));
  parts.decoder = TRY(Decoder::create(Field(name, "decoder", &decoder)));
  parts.model = std::move(model);
  return parts;
}

Result<TokenizerParts> load_sentencepiece(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const TokenizerConfig config = TRY(TokenizerConfig::load(folder.string()));
  const std::string bytes = TRY(read_text_file(path));
  if (is_lfs_pointer(bytes)) return lfs_pointer_error(path);
  // Hugging Face treats a file without the field `legacy` as a file of an older version of its library.
  const auto prefix =
      config.legacy.value_or(true) ? SentencePieceModel::Prefix::kEveryText : SentencePieceModel::Prefix::kFirstText;
  AddedList added;
  TRY(added.add_decoder(
      Field((folder / "tokenizer_config.json").string(), "added_tokens_decoder", &config.added_tokens)));
  TRY(added.add_file((folder / "added_tokens.json").string()));

  TokenizerParts parts = TRY(make_sentencepiece(bytes, path, prefix, added.list()));
  const auto& model = dynamic_cast<const SentencePieceModel&>(*parts.model);
  parts.post_processor.before =
      TRY(end_tokens(parts, "bos_token", config.add_bos_token.value_or(true), config.bos_token, model.begin_token()));
  parts.post_processor.after =
      TRY(end_tokens(parts, "eos_token", config.add_eos_token.value_or(false), config.eos_token, model.end_token()));
  return parts;
}

}  // namespace tessera
