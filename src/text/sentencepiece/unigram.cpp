#include "tessera/text/sentencepiece/unigram.h"

#include <algorithm>
#include <numeric>

#include "tessera/text/field.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// The score of an unknown character is the lowest score of all tokens, minus this penalty (SentencePiece's constant).
constexpr double kUnknownPenalty = 10.0;

}  // namespace

Result<Unigram> Unigram::create(const TokenizerJson& file) {
  Unigram out;
  const Field model(file.file, "model", &file.model);
  double least = 0;
  for (const auto& entry : file.vocab) {
    if (entry.token.empty()) {
      return invalid_argument(file.file + ": model.vocab[" + std::to_string(entry.id) +
                              "]: \"\"; accepted: tokens that are not empty");
    }
    Status added = out.vocabulary_.add(entry.token, entry.id);
    if (!added.ok()) return std::move(added).with_context(file.file + ": model.vocab");
    out.scores_.push_back(entry.score);
    least = out.scores_.size() == 1 ? entry.score : std::min(least, entry.score);
  }
  out.unknown_score_ = least - kUnknownPenalty;
  out.sorted_.resize(out.scores_.size());
  std::iota(out.sorted_.begin(), out.sorted_.end(), 0);
  std::sort(out.sorted_.begin(), out.sorted_.end(),
            [&](std::int32_t a, std::int32_t b) { return out.token(a) < out.token(b); });
  out.byte_fallback_ = TRY(model.member("byte_fallback").boolean_or(false));
  out.byte_tokens_ = find_byte_tokens(out.vocabulary_);
  const Field unknown = model.member("unk_id");
  const std::int64_t id = TRY(unknown.integer_or(-1));
  if (!unknown.absent() && (id < 0 || id >= out.vocabulary_.size())) {
    return unknown.invalid("accepted: null or an id from 0 to " + std::to_string(out.vocabulary_.size() - 1));
  }
  out.unknown_ = static_cast<std::int32_t>(id);
  return out;
}

Status Unigram::encode(const Pieces& pieces, std::vector<TokenId>& out) const {
  std::vector<Node> nodes;
  for (const TextRange& range : pieces.ranges) TRY(encode_piece(pieces.view(range), nodes, out));
  return ok_status();
}

void Unigram::find_prefixes(std::string_view text, std::vector<Match>& out) const {
  out.clear();
  auto begin = sorted_.begin();
  auto end = sorted_.end();
  // The range [begin, end) of sorted_ has the tokens that start with the first `length` bytes of `text`.
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto byte_of = [&](std::int32_t id) { return static_cast<unsigned char>(token(id)[length]); };
    const auto byte = static_cast<unsigned char>(text[length]);
    begin = std::partition_point(begin, end, [&](std::int32_t id) { return byte_of(id) < byte; });
    end = std::partition_point(begin, end, [&](std::int32_t id) { return byte_of(id) == byte; });
    if (begin == end) return;
    if (token(*begin).size() != length + 1) continue;
    out.push_back({static_cast<std::int32_t>(length + 1), *begin});
    ++begin;
  }
}

Status Unigram::find_best(std::string_view piece, std::vector<Node>& nodes) const {
  nodes.assign(piece.size() + 1, Node{});
  std::vector<Match> matches;
  for (std::size_t pos = 0; pos < piece.size();) {
    const std::size_t character = decode_utf8(piece, pos).length;
    const double so_far = nodes[pos].score;
    const auto propose = [&](std::size_t length, std::int32_t id, double score) {
      Node& target = nodes[pos + length];
      if (target.begin >= 0 && so_far + score <= target.score) return;
      target = {so_far + score, static_cast<std::int32_t>(pos), id};
    };
    bool has_character = false;
    find_prefixes(piece.substr(pos), matches);
    for (const Match& match : matches) {
      const auto length = static_cast<std::size_t>(match.length);
      propose(length, match.id, scores_[static_cast<std::size_t>(match.id)]);
      has_character = has_character || length == character;
    }
    if (!has_character) {
      if (unknown_ < 0) {
        return invalid_argument("the character " + quote_for_error(piece.substr(pos, character)) +
                                " has no token, and the tokenizer has no unknown token (model.unk_id)");
      }
      propose(character, unknown_, unknown_score_);
    }
    pos += character;
  }
  return ok_status();
}

Status Unigram::encode_piece(std::string_view piece, std::vector<Node>& nodes, std::vector<TokenId>& out) const {
  TRY(find_best(piece, nodes));
  // A node refers only to the token before it, so the parts are collected from the last to the first and then reversed.
  std::vector<TextRange> parts;
  bool previous_unknown = false;
  for (std::size_t end = piece.size(); end > 0;) {
    const Node& node = nodes[end];
    const auto begin = static_cast<std::size_t>(node.begin);
    const bool unknown = node.id == unknown_;
    if (unknown && previous_unknown) {
      parts.back().begin = begin;
    } else {
      parts.push_back({begin, end});
    }
    previous_unknown = unknown;
    end = begin;
  }
  std::reverse(parts.begin(), parts.end());
  for (const TextRange& part : parts) {
    const std::string_view text = piece.substr(part.begin, part.end - part.begin);
    if (const std::int32_t id = vocabulary_.find(text); id >= 0) {
      out.emplace_back(id);
    } else {
      append_unknown(text, out);
    }
  }
  return ok_status();
}

void Unigram::append_unknown(std::string_view text, std::vector<TokenId>& out) const {
  bool all_bytes = byte_fallback_;
  for (const char c : text) all_bytes = all_bytes && byte_tokens_[static_cast<unsigned char>(c)] >= 0;
  if (!all_bytes) {
    out.emplace_back(unknown_);
    return;
  }
  for (const char c : text) out.emplace_back(byte_tokens_[static_cast<unsigned char>(c)]);
}

}  // namespace tessera
