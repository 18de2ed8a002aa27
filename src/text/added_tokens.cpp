#include "tessera/text/added_tokens.h"

#include <algorithm>

#include "tessera/text/tokenizer_json.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// Returns the character that ends at `end`; 0 at the beginning of the text.
char32_t character_before(std::string_view text, std::size_t end) {
  if (end == 0) return 0;
  std::size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return decode_utf8(text, begin).code;
}

char32_t character_at(std::string_view text, std::size_t pos) {
  return pos == text.size() ? 0 : decode_utf8(text, pos).code;
}

std::size_t skip_spaces_back(std::string_view text, std::size_t end, std::size_t limit) {
  while (end > limit && is_whitespace(character_before(text, end))) {
    --end;
    while (end > limit && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  }
  return end;
}

std::size_t skip_spaces(std::string_view text, std::size_t pos) {
  while (pos < text.size()) {
    const Utf8Step step = decode_utf8(text, pos);
    if (!is_whitespace(step.code)) break;
    pos += step.length;
  }
  return pos;
}

Result<AddedToken> read_token(const Field& field) {
  AddedToken token;
  const Field content = field.member("content");
  token.content = TRY(content.string());
  if (token.content.empty()) return content.invalid("accepted: a string that is not empty");
  const Field id = field.member("id");
  const std::int64_t value = TRY(id.integer());
  if (value < 0 || value >= kMaxVocabularySize) {
    return id.invalid("accepted: an id from 0 to " + std::to_string(kMaxVocabularySize - 1));
  }
  token.id = static_cast<std::int32_t>(value);
  token.special = TRY(field.member("special").boolean_or(false));
  token.normalized = TRY(field.member("normalized").boolean_or(!token.special));
  token.lstrip = TRY(field.member("lstrip").boolean_or(false));
  token.rstrip = TRY(field.member("rstrip").boolean_or(false));
  token.single_word = TRY(field.member("single_word").boolean_or(false));
  return token;
}

}  // namespace

std::int32_t AddedTokens::Trie::child(std::int32_t node, unsigned char byte) const {
  const auto& children = nodes_[static_cast<std::size_t>(node)].children;
  const auto it = std::lower_bound(children.begin(), children.end(), byte,
                                   [](const auto& entry, unsigned char wanted) { return entry.first < wanted; });
  return it == children.end() || it->first != byte ? -1 : it->second;
}

void AddedTokens::Trie::add(std::string_view text, std::int32_t token) {
  if (text.empty()) return;  // normalisation may leave an empty text, which matches nothing
  first_bytes_[static_cast<unsigned char>(text.front())] = true;
  std::int32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      auto& children = nodes_[static_cast<std::size_t>(node)].children;
      const auto at = std::lower_bound(children.begin(), children.end(), std::pair{byte, std::int32_t{0}});
      children.insert(at, {byte, next});
      nodes_.emplace_back();
    }
    node = next;
  }
  nodes_[static_cast<std::size_t>(node)].token = token;
}

AddedTokens::Trie::Match AddedTokens::Trie::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!first_bytes_[static_cast<unsigned char>(text[begin])]) continue;
    Match match{begin, begin, -1};
    std::int32_t node = 0;
    for (std::size_t pos = begin; pos < text.size(); ++pos) {
      node = child(node, static_cast<unsigned char>(text[pos]));
      if (node < 0) break;
      const std::int32_t token = nodes_[static_cast<std::size_t>(node)].token;
      if (token >= 0) match = {begin, pos + 1, token};
    }
    if (match.token >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

Result<AddedTokens> AddedTokens::create(const Field& field, const Vocabulary& model, const Normalizer* normalizer) {
  AddedTokens out;
  if (field.absent()) return out;
  const std::vector<Field> items = TRY(field.elements());
  out.tokens_.reserve(items.size());  // by_content_ holds views into this vector, so it must not grow
  for (const Field& item : items) {
    AddedToken token = TRY(read_token(item));
    const std::int32_t in_model = model.find(token.content);
    if (in_model >= 0 && in_model != token.id) {
      return item.invalid("model.vocab has this token with id " + std::to_string(in_model) + "; accepted: the same id");
    }
    if (const auto other = model.token(token.id); other && *other != token.content) {
      return item.invalid("model.vocab has this id for token " + quote_for_error(*other) + "; accepted: a free id");
    }
    const auto index = out.tokens_.size();
    if (out.by_id_.contains(token.id)) return item.invalid("this id appears twice; accepted: ids that differ");
    token.written = token.content;
    if (token.normalized && normalizer != nullptr) TRY(normalizer->apply(token.written));
    out.tokens_.push_back(std::move(token));
    const AddedToken& added = out.tokens_.back();
    if (!out.by_content_.emplace(added.content, index).second) {
      return item.invalid("this content appears twice; accepted: contents that differ");
    }
    out.by_id_.emplace(added.id, index);
    out.size_ = std::max(out.size_, added.id + 1);
    (added.normalized ? out.normalized_ : out.raw_).add(added.written, static_cast<std::int32_t>(index));
  }
  return out;
}

std::vector<AddedSpan> AddedTokens::split(std::string_view text, bool normalized, bool parse_special) const {
  const Trie& trie = normalized ? normalized_ : raw_;
  std::vector<AddedSpan> out;
  std::size_t done = 0;
  for (std::size_t pos = 0; !trie.empty();) {
    const Trie::Match match = trie.find(text, pos);
    if (match.token < 0) break;
    pos = match.end;
    const AddedToken& token = tokens_[static_cast<std::size_t>(match.token)];
    if (token.special && !parse_special) continue;
    if (token.single_word && (is_word(character_before(text, match.begin)) || is_word(character_at(text, match.end)))) {
      continue;
    }
    // Skips a match that lies wholly in white space which an earlier token with rstrip has already consumed.
    if (match.end <= done) continue;
    std::size_t begin = std::max(match.begin, done);
    if (token.lstrip) begin = skip_spaces_back(text, begin, done);
    if (done < begin) out.push_back({done, begin, -1});
    done = token.rstrip ? skip_spaces(text, match.end) : match.end;
    out.push_back({begin, done, token.id});
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto it = by_content_.find(content);
  return it == by_content_.end() ? nullptr : &tokens_[it->second];
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &tokens_[it->second];
}

}  // namespace tessera
