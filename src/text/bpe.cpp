#include "tessera/text/bpe.h"

#include <bit>
#include <queue>
#include <tuple>

#include "tessera/text/field.h"
#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// In a piece with at most this many symbols, scanning all pairs is faster than a heap.
constexpr std::size_t kFewSymbols = 24;

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

std::size_t hash_pair(std::uint64_t pair) {
  pair *= 0x9e3779b97f4a7c15ull;
  return static_cast<std::size_t>(pair ^ (pair >> 32));
}

}  // namespace

Result<Bpe> Bpe::create(const TokenizerJson& file) {
  Bpe bpe;
  std::size_t bytes = 0;
  for (const auto& entry : file.vocab) bytes += entry.token.size();
  bpe.vocabulary_.reserve(file.vocab.size() + 64, bytes);
  for (const auto& entry : file.vocab) {
    Status added = bpe.vocabulary_.add(entry.token, entry.id);
    if (!added.ok()) return std::move(added).with_context(file.file + ": model.vocab");
  }
  TRY(bpe.read_options(file));
  TRY(bpe.read_merges(file));
  const auto size = static_cast<std::size_t>(bpe.vocabulary_.size());
  bpe.whole_ = std::make_unique<std::atomic<Whole>[]>(size);
  return bpe;
}

Status Bpe::read_options(const TokenizerJson& file) {
  const Field model(file.file, "model", &file.model);
  const Field dropout = model.member("dropout");
  if (!dropout.absent() && !(dropout.json().is_number() && dropout.json().as_double() == 0.0)) {
    return dropout.invalid("accepted: null or 0 (dropout belongs to training)");
  }
  fuse_unknown_ = TRY(model.member("fuse_unk").boolean_or(false));
  byte_fallback_ = TRY(model.member("byte_fallback").boolean_or(false));
  ignore_merges_ = TRY(model.member("ignore_merges").boolean_or(false));
  prefix_ = TRY(model.member("continuing_subword_prefix").string_or(""));
  suffix_ = TRY(model.member("end_of_word_suffix").string_or(""));
  const Field unknown = model.member("unk_token");
  if (!unknown.absent()) {
    unknown_ = vocabulary_.find(TRY(unknown.string()));
    if (unknown_ < 0) return unknown.invalid("accepted: null or a token of model.vocab");
  }
  byte_tokens_ = find_byte_tokens(vocabulary_);
  return ok_status();
}

Status Bpe::read_merges(const TokenizerJson& file) {
  merges_.assign(std::bit_ceil(2 * file.merges.size() + 16), Merge{});
  const std::size_t mask = merges_.size() - 1;
  std::string joined;
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto& [left, right] = file.merges[rank];
    const auto refuse = [&](std::string_view token) {
      return invalid_argument(file.file + ": model.merges[" + std::to_string(rank) + "]: " + quote_for_error(left) +
                              " + " + quote_for_error(right) + ": " + quote_for_error(token) +
                              " is not in model.vocab; accepted: merges whose parts and result are tokens");
    };
    const std::int32_t left_id = vocabulary_.find(left);
    if (left_id < 0) return refuse(left);
    const std::int32_t right_id = vocabulary_.find(right);
    if (right_id < 0) return refuse(right);
    joined.assign(left);
    joined += right.substr(!prefix_.empty() && right.starts_with(prefix_) ? prefix_.size() : 0);
    const std::int32_t result = vocabulary_.find(joined);
    if (result < 0) return refuse(joined);

    const std::uint64_t pair = pair_of(left_id, right_id);
    std::size_t slot = hash_pair(pair) & mask;
    while (merges_[slot].pair != kNoPair && merges_[slot].pair != pair) slot = (slot + 1) & mask;
    // If a pair is listed twice, its last rank counts, as in Hugging Face's library.
    merges_[slot] = {pair, static_cast<std::int32_t>(rank), result};
  }
  return ok_status();
}

const Bpe::Merge* Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = merges_.size() - 1;
  for (std::size_t slot = hash_pair(pair) & mask;; slot = (slot + 1) & mask) {
    if (merges_[slot].pair == pair) return &merges_[slot];
    if (merges_[slot].pair == kNoPair) return nullptr;
  }
}

Status Bpe::encode(const Pieces& pieces, std::vector<TokenId>& out) const {
  Workspace symbols;
  for (const TextRange& range : pieces.ranges) encode_piece(pieces.view(range), symbols, out);
  return ok_status();
}

void Bpe::encode_piece(std::string_view piece, Workspace& symbols, std::vector<TokenId>& out) const {
  const std::int32_t whole = vocabulary_.find(piece);
  Whole known = Whole::kUnknown;
  if (whole >= 0) {
    known = ignore_merges_ ? Whole::kYes : whole_[static_cast<std::size_t>(whole)].load(std::memory_order_relaxed);
    if (known == Whole::kYes) {
      out.emplace_back(whole);
      return;
    }
  }
  merge_piece(piece, symbols);
  const std::size_t first = out.size();
  if (!symbols.ids.empty()) {
    for (std::int32_t at = 0; at >= 0; at = symbols.next[static_cast<std::size_t>(at)]) {
      out.emplace_back(symbols.ids[static_cast<std::size_t>(at)]);
    }
  }
  if (whole >= 0 && known == Whole::kUnknown) {
    const bool same = out.size() == first + 1 && out.back() == TokenId(whole);
    whole_[static_cast<std::size_t>(whole)].store(same ? Whole::kYes : Whole::kNo, std::memory_order_relaxed);
  }
}

void Bpe::merge_piece(std::string_view piece, Workspace& symbols) const {
  split_characters(piece, symbols);
  const std::size_t count = symbols.ids.size();
  symbols.previous.resize(count);
  symbols.next.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    symbols.previous[i] = static_cast<std::int32_t>(i) - 1;
    symbols.next[i] = i + 1 < count ? static_cast<std::int32_t>(i + 1) : -1;
  }
  if (count <= kFewSymbols) {
    merge_few(symbols);
  } else {
    merge_many(symbols);
  }
}

// Adds the symbol of each character. For a character without a symbol, adds the tokens of its bytes. If these are also
// missing, adds the unknown token. As in Hugging Face's library, the unknown token is not added at once. It is added
// just before the next character's symbol, just before the next unknown token (unless fuse_unk joins the two), or at
// the end of the piece. If characters in between become byte tokens, these come before the unknown token.
void Bpe::split_characters(std::string_view piece, Workspace& symbols) const {
  symbols.ids.clear();
  bool pending_unknown = false;
  std::string affixed;
  for (std::size_t pos = 0; pos < piece.size();) {
    const std::size_t length = decode_utf8(piece, pos).length;
    std::string_view character = piece.substr(pos, length);
    const bool first = pos == 0;
    pos += length;
    if ((!first && !prefix_.empty()) || (pos == piece.size() && !suffix_.empty())) {
      affixed.assign(first ? "" : prefix_);
      affixed += character;
      if (pos == piece.size()) affixed += suffix_;
      character = affixed;
    }
    if (const std::int32_t id = vocabulary_.find(character); id >= 0) {
      if (pending_unknown) symbols.ids.push_back(unknown_);
      pending_unknown = false;
      symbols.ids.push_back(id);
      continue;
    }
    bool all_bytes = byte_fallback_;
    for (const char c : character) all_bytes = all_bytes && byte_tokens_[static_cast<unsigned char>(c)] >= 0;
    if (all_bytes) {
      for (const char c : character) symbols.ids.push_back(byte_tokens_[static_cast<unsigned char>(c)]);
      continue;
    }
    if (unknown_ < 0) continue;
    if (pending_unknown && !fuse_unknown_) symbols.ids.push_back(unknown_);
    pending_unknown = true;
  }
  if (pending_unknown) symbols.ids.push_back(unknown_);
}

void Bpe::merge_few(Workspace& symbols) const {
  for (;;) {
    const Merge* best = nullptr;
    std::size_t best_at = 0;
    for (std::size_t at = 0; at < symbols.ids.size() && symbols.next[at] >= 0;
         at = static_cast<std::size_t>(symbols.next[at])) {
      const Merge* merge = find_merge(symbols.ids[at], symbols.ids[static_cast<std::size_t>(symbols.next[at])]);
      if (merge != nullptr && (best == nullptr || merge->rank < best->rank)) {
        best = merge;
        best_at = at;
      }
    }
    if (best == nullptr) return;
    symbols.ids[best_at] = best->result;
    symbols.next[best_at] = symbols.next[static_cast<std::size_t>(symbols.next[best_at])];
  }
}

void Bpe::merge_many(Workspace& symbols) const {
  // A possible merge. Candidates are ordered by rank, then from the left. A candidate is stale when another merge has
  // consumed its left symbol, or when its two symbols no longer merge into `result`.
  struct Candidate {
    std::int32_t rank;
    std::int32_t at;
    std::int32_t result;
    bool operator>(const Candidate& other) const { return std::tie(rank, at) > std::tie(other.rank, other.at); }
  };
  constexpr std::int32_t kConsumed = -1;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto propose = [&](std::int32_t at) {
    if (at < 0) return;
    const std::int32_t right = symbols.next[static_cast<std::size_t>(at)];
    if (right < 0) return;
    const Merge* merge =
        find_merge(symbols.ids[static_cast<std::size_t>(at)], symbols.ids[static_cast<std::size_t>(right)]);
    if (merge != nullptr) queue.push({merge->rank, at, merge->result});
  };
  for (std::size_t i = 0; i < symbols.ids.size(); ++i) propose(static_cast<std::int32_t>(i));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    const auto at = static_cast<std::size_t>(top.at);
    if (symbols.ids[at] == kConsumed || symbols.next[at] < 0) continue;
    const auto right = static_cast<std::size_t>(symbols.next[at]);
    const Merge* merge = find_merge(symbols.ids[at], symbols.ids[right]);
    if (merge == nullptr || merge->result != top.result) continue;
    symbols.ids[at] = top.result;
    symbols.ids[right] = kConsumed;
    symbols.next[at] = symbols.next[right];
    if (symbols.next[at] >= 0) symbols.previous[static_cast<std::size_t>(symbols.next[at])] = top.at;
    propose(symbols.previous[at]);
    propose(top.at);
  }
}

}  // namespace tessera
