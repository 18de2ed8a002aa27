#include "tessera/model/quantise/folder_token_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_map>

#include "tessera/base/json.h"
#include "tessera/text/lists/pre_tokenizers.h"
#include "tessera/text/sentencepiece/sentencepiece_proto.h"
#include "tessera/text/tokenizer_config.h"
#include "tessera/text/tokenizer_json.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

FolderTokenLists empty_lists(const std::string& file, std::int64_t size) {
  FolderTokenLists lists;
  lists.file = file;
  for (std::int64_t id = 0; id < size; ++id) lists.tokens.push_back(fmt::format("[PAD{}]", id));
  lists.kinds.assign(lists.tokens.size(), TokenKind::kUnused);
  return lists;
}

void put(FolderTokenLists& lists, std::int64_t id, std::string_view token, TokenKind kind) {
  if (id < 0 || id >= std::ssize(lists.tokens)) {
    ++lists.left_out;
    return;
  }
  lists.tokens[static_cast<std::size_t>(id)] = token;
  lists.kinds[static_cast<std::size_t>(id)] = kind;
}

bool is_true(const Json& json, const char* member) {
  const Json* flag = json.find(member);
  return flag != nullptr && *flag == Json(true);
}

// Puts an entry of "added_tokens", {"content": …, "special": …}, into the lists. The lists are not changed if they
// already contain the token with the kind unknown or control.
void put_added(FolderTokenLists& lists, std::int64_t id, const Json& token) {
  const Json* content = token.find("content");
  if (content == nullptr || !content->is_string()) return;
  const bool known = id >= 0 && id < std::ssize(lists.tokens);
  const TokenKind kind = known ? lists.kinds[static_cast<std::size_t>(id)] : TokenKind::kUnused;
  if (kind == TokenKind::kUnknown || kind == TokenKind::kControl) return;
  put(lists, id, content->as_string(), is_true(token, "special") ? TokenKind::kControl : TokenKind::kUserDefined);
}

void put_all_added(FolderTokenLists& lists, const Json& added) {
  if (!added.is_array()) return;
  for (const Json& token : added.as_array()) {
    const Json* id = token.find("id");
    if (id != nullptr && id->is_int()) put_added(lists, id->as_int(), token);
  }
}

void put_merges(FolderTokenLists& lists, const TokenizerJson& json) {
  for (const TokenizerJson::MergeEntry& merge : json.merges)
    lists.merges.push_back(fmt::format("{} {}", merge.left, merge.right));
}

bool is_byte_token(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

// Returns the lists for a tokenizer.json that was made from a SentencePiece model. SentencePiece merges the pair whose
// token has the highest score. tokenizer.json has no scores, but lists the pairs in the order of their scores. The
// position in that list therefore gives a score with the same effect.
FolderTokenLists lists_of_marks(const TokenizerJson& json, std::int64_t size) {
  FolderTokenLists lists = empty_lists(json.file, size);
  lists.model = "llama";
  lists.pre = "default";
  std::unordered_map<std::string, float> scores;
  for (const TokenizerJson::MergeEntry& merge : json.merges)
    scores.emplace(std::string(merge.left) + std::string(merge.right), -static_cast<float>(scores.size() + 1));
  const Json* unknown = json.model.find("unk_token");
  lists.scores.assign(lists.tokens.size(), -static_cast<float>(scores.size() + 1));
  for (const TokenizerJson::VocabEntry& entry : json.vocab) {
    const bool is_unknown = unknown != nullptr && *unknown == Json(entry.token);
    put(lists, entry.id, entry.token,
        is_unknown                   ? TokenKind::kUnknown
        : is_byte_token(entry.token) ? TokenKind::kByte
                                     : TokenKind::kNormal);
    const auto score = scores.find(std::string(entry.token));
    if (score != scores.end() && entry.id < std::ssize(lists.scores))
      lists.scores[static_cast<std::size_t>(entry.id)] = score->second;
  }
  put_all_added(lists, json.added_tokens);
  return lists;
}

// Tokens of Gemma 4's chat format that llama.cpp's converter marks as user-defined, so that programs which parse
// answers see them in the text.
constexpr std::string_view kGemma4Visible[] = {"<|channel>",       "<channel|>",       "<|tool_call>", "<tool_call|>",
                                               "<|tool_response>", "<tool_response|>", "<|\"|>"};

// Returns the lists for Gemma 4's tokenizer.json.
FolderTokenLists lists_of_gemma4(const TokenizerJson& json, std::int64_t size) {
  FolderTokenLists lists = empty_lists(json.file, size);
  lists.model = "gemma4";
  for (const TokenizerJson::VocabEntry& entry : json.vocab)
    put(lists, entry.id, entry.token, is_byte_token(entry.token) ? TokenKind::kByte : TokenKind::kNormal);
  put_merges(lists, json);
  put_all_added(lists, json.added_tokens);
  for (std::size_t id = 0; id < lists.tokens.size(); ++id)
    if (std::ranges::find(kGemma4Visible, lists.tokens[id]) != std::end(kGemma4Visible))
      lists.kinds[id] = TokenKind::kUserDefined;
  return lists;
}

Result<FolderTokenLists> lists_of_pieces(const std::string& folder, const std::string& file, std::int64_t size) {
  const std::string bytes = TRY(read_text_file(file));
  FolderTokenLists lists = empty_lists(file, size);
  lists.model = "llama";
  lists.pre = "default";
  lists.scores.assign(lists.tokens.size(), 0);
  const std::vector<SentencePiece> pieces = TRY(read_pieces(bytes, file));
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const bool known = pieces[id].kind >= 1 && pieces[id].kind <= static_cast<std::uint64_t>(TokenKind::kByte);
    put(lists, static_cast<std::int64_t>(id), pieces[id].text,
        known ? static_cast<TokenKind>(pieces[id].kind) : TokenKind::kNormal);
    if (id < lists.scores.size()) lists.scores[id] = pieces[id].score;
  }
  const TokenizerConfig config = TRY(TokenizerConfig::load(folder));
  if (!config.added_tokens.is_object()) return lists;
  for (const auto& [key, token] : config.added_tokens.as_object()) {
    std::int64_t id = -1;
    std::from_chars(key.data(), key.data() + key.size(), id);
    put_added(lists, id, token);
  }
  return lists;
}

Result<FolderTokenLists> lists_of_bytes(const TokenizerJson& json, std::int64_t size) {
  const std::optional<std::string> pre =
      name_pre_tokenizer(json.normalizer, json.pre_tokenizer, is_true(json.model, "ignore_merges"));
  if (json.model_type != TokenizerJson::ModelType::kBpe || !pre)
    return unimplemented(fmt::format(
        "{}: no name of GGUF files stands for its model, normalizer and pre_tokenizer; accepted: byte-pair encoding, "
        "of characters with fallback to bytes, or of bytes that are cut as by {}",
        json.file, pre_tokenizer_names()));
  FolderTokenLists lists = empty_lists(json.file, size);
  lists.model = "gpt2";
  lists.pre = *pre;
  for (const TokenizerJson::VocabEntry& entry : json.vocab) put(lists, entry.id, entry.token, TokenKind::kNormal);
  put_merges(lists, json);
  put_all_added(lists, json.added_tokens);
  return lists;
}

}  // namespace

Result<FolderTokenLists> read_folder_token_lists(const std::string& folder, const ModelConfig& config) {
  const std::int64_t size = config.vocab_size;
  const std::string file = (fs::path(folder) / "tokenizer.json").string();
  const std::string pieces = (fs::path(folder) / "tokenizer.model").string();
  std::error_code error;
  if (!fs::exists(file, error)) return lists_of_pieces(folder, pieces, size);
  const std::string text = TRY(read_text_file(file));
  const TokenizerJson json = TRY(TokenizerJson::parse(text, file));
  if (json.model_type != TokenizerJson::ModelType::kBpe || !is_true(json.model, "byte_fallback"))
    return lists_of_bytes(json, size);
  if (config.gemma4) return lists_of_gemma4(json, size);
  if (!fs::exists(pieces, error)) return lists_of_marks(json, size);
  FolderTokenLists lists = TRY(lists_of_pieces(folder, pieces, size));
  put_all_added(lists, json.added_tokens);
  return lists;
}

}  // namespace tessera
