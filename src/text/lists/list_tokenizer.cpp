#include "tessera/text/lists/list_tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/log.h"
#include "tessera/text/lists/piece_model.h"
#include "tessera/text/lists/pre_tokenizers.h"
#include "tessera/text/tokenizer_json.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

Status check_lists(const TokenLists& lists) {
  const auto wrong = [&](const std::string& what) { return invalid_argument(lists.file + ": " + what); };
  if (lists.tokens.empty() || std::ssize(lists.tokens) >= kMaxVocabularySize)
    return wrong(
        fmt::format("{} has {} tokens; accepted: 1 to {}", kTokens, lists.tokens.size(), kMaxVocabularySize - 1));
  if (!lists.kinds.empty() && lists.kinds.size() != lists.tokens.size())
    return wrong(fmt::format("tokenizer.ggml.token_type has {} entries; accepted: {}, one for each token",
                             lists.kinds.size(), lists.tokens.size()));
  for (std::size_t id = 0; id < lists.tokens.size(); ++id)
    if (const std::size_t fault = find_invalid_utf8(lists.tokens[id]); fault != std::string_view::npos)
      return wrong(fmt::format("{}[{}] is no UTF-8: byte {} begins no character; accepted: UTF-8", kTokens, id, fault));
  for (const auto& [name, id] : {std::pair("bos", lists.bos), {"eos", lists.eos}})
    if (id && (id->value() < 0 || id->index() >= lists.tokens.size()))
      return wrong(fmt::format("tokenizer.ggml.{}_token_id is {}; accepted: 0 to {}", name, id->value(),
                               lists.tokens.size() - 1));
  return ok_status();
}

bool is_kind(const TokenLists& lists, std::size_t id, TokenKind kind) {
  return !lists.kinds.empty() && lists.kinds[id] == kind;
}

// Returns the added tokens in the form of tokenizer.json. The tokenizer finds these tokens in a text before it splits
// the text.
Json added_tokens(const TokenLists& lists) {
  Json::Array added;
  for (std::size_t id = 0; id < lists.tokens.size(); ++id) {
    const bool control = is_kind(lists, id, TokenKind::kControl);
    if ((!control && !is_kind(lists, id, TokenKind::kUserDefined)) || lists.tokens[id].empty()) continue;
    added.emplace_back(Json::object())
        .set("id", id)
        .set("content", lists.tokens[id])
        .set("special", control)
        .set("normalized", false);
  }
  return added;
}

// Adds the merges, and adds all tokens except control tokens to the vocabulary. Control tokens are only among the added
// tokens, so that the tokenizer returns a control token only if special tokens are parsed.
Status add_vocabulary(const TokenLists& lists, TokenizerJson& json) {
  for (std::size_t id = 0; id < lists.tokens.size(); ++id)
    if (!is_kind(lists, id, TokenKind::kControl))
      json.vocab.push_back({lists.tokens[id], static_cast<std::int32_t>(id)});
  for (std::size_t rank = 0; rank < lists.merges.size(); ++rank) {
    const std::string_view merge = lists.merges[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size())
      return invalid_argument(
          fmt::format("{}: tokenizer.ggml.merges[{}] is {}; accepted: two tokens with a space "
                      "between them",
                      lists.file, rank, quote_for_error(merge)));
    json.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  return ok_status();
}

constexpr const char* kByteDecoder = R"({"type": "ByteLevel"})";
constexpr const char* kMarkDecoder = R"({"type": "Sequence", "decoders": [
  {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]})";

Result<TokenizerParts> make_merging(const TokenLists& lists) {
  const bool marks = lists.model == "gemma4";
  const std::string pre = marks ? "gemma4" : lists.pre;
  if (pre.empty())
    log_warn("load",
             "{}: there is no tokenizer.ggml.pre; texts are cut as llama.cpp cuts them then, which is not "
             "how most models were trained",
             lists.file);
  NamedPreTokenizer named;
  if (!find_pre_tokenizer(pre, named))
    return unimplemented(fmt::format("{}: tokenizer.ggml.pre is {}; accepted: {}{}", lists.file, quote_for_error(pre),
                                     pre_tokenizer_names(), "; or give another tokenizer with --tokenizer-path"));
  TokenizerJson json;
  json.file = lists.file;
  json.normalizer = std::move(named.normalizer);
  json.pre_tokenizer = std::move(named.pre_tokenizer);
  json.decoder = TRY(Json::parse(marks ? kMarkDecoder : kByteDecoder, "the decoder"));
  json.added_tokens = added_tokens(lists);
  json.model = Json::object();
  json.model.set("ignore_merges", named.ignore_merges).set("byte_fallback", marks);
  TRY(add_vocabulary(lists, json));
  TokenizerParts parts = TRY(make_parts(json));
  if (lists.bos && lists.add_bos.value_or(named.add_bos)) parts.post_processor.before = {*lists.bos};
  return parts;
}

}  // namespace

Result<TokenizerParts> make_list_tokenizer(const TokenLists& lists) {
  TRY(check_lists(lists));
  TokenizerParts parts;
  if (lists.model == "llama") {
    parts = TRY(make_piece_tokenizer(lists));
    if (lists.bos && lists.add_bos.value_or(true)) parts.post_processor.before = {*lists.bos};
  } else if (lists.model == "gpt2" || lists.model == "gemma4") {
    parts = TRY(make_merging(lists));
  } else {
    return unimplemented(fmt::format("{}: tokenizer.ggml.model is {}; accepted: gpt2, llama, gemma4", lists.file,
                                     lists.model.empty() ? "missing" : quote_for_error(lists.model)));
  }
  if (lists.eos && lists.add_eos.value_or(false)) parts.post_processor.after = {*lists.eos};
  return parts;
}

}  // namespace tessera
