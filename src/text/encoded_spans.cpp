#include "tessera/text/encoded_spans.h"

#include <functional>
#include <iterator>

namespace tessera {

EncodedSpans::Entries::iterator EncodedSpans::locate(std::string_view text, unsigned kind, std::uint64_t hash) {
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto each = begin; each != end; ++each)
    if (each->second->kind == kind && each->second->text == text) return each->second;
  return entries_.end();
}

EncodedSpans::Ids EncodedSpans::find(std::string_view text, unsigned kind) {
  if (text.size() < kLeastBytes) return nullptr;
  const std::uint64_t hash = std::hash<std::string_view>()(text);
  const std::scoped_lock lock(mutex_);
  const auto found = locate(text, kind, hash);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->ids;
}

void EncodedSpans::add(std::string_view text, unsigned kind, std::span<const TokenId> ids) {
  if (text.size() < kLeastBytes) return;
  Entry entry{.text = std::string(text),
              .kind = kind,
              .hash = std::hash<std::string_view>()(text),
              .ids = std::make_shared<const std::vector<TokenId>>(ids.begin(), ids.end())};
  if (entry.bytes() > most_bytes_ / kMostShare) return;
  const std::scoped_lock lock(mutex_);
  if (locate(text, kind, entry.hash) != entries_.end()) return;  // another thread encoded the text at the same time
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  by_hash_.emplace(entries_.front().hash, entries_.begin());
  while (bytes_ > most_bytes_) {
    const auto last = std::prev(entries_.end());
    const auto [begin, end] = by_hash_.equal_range(last->hash);
    for (auto each = begin; each != end; ++each) {
      if (each->second != last) continue;
      by_hash_.erase(each);
      break;
    }
    bytes_ -= last->bytes();
    entries_.pop_back();
  }
}

std::size_t EncodedSpans::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

}  // namespace tessera
