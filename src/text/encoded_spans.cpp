#include "tessera/text/encoded_spans.h"

namespace tessera {

EncodedSpans::Ids EncodedSpans::find(std::string_view text, unsigned kind) {
  if (text.size() < kLeastBytes) return nullptr;
  const std::scoped_lock lock(mutex_);
  const auto found = by_text_.find({kind, text});
  if (found == by_text_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->ids;
}

void EncodedSpans::add(std::string_view text, unsigned kind, std::span<const TokenId> ids) {
  const std::size_t bytes = bytes_of(text, ids.size());
  if (text.size() < kLeastBytes || bytes > most_bytes_ / kMostShare) return;
  Entry entry{.text = std::string(text),
              .kind = kind,
              .ids = std::make_shared<const std::vector<TokenId>>(ids.begin(), ids.end())};
  const std::scoped_lock lock(mutex_);
  if (by_text_.contains({kind, text})) return;  // another thread encoded the text at the same time
  entries_.push_front(std::move(entry));
  by_text_.emplace(Key{kind, entries_.front().text}, entries_.begin());
  bytes_ += bytes;
  while (bytes_ > most_bytes_) {
    const Entry& last = entries_.back();
    bytes_ -= bytes_of(last.text, last.ids->size());
    by_text_.erase({last.kind, last.text});
    entries_.pop_back();
  }
}

void EncodedSpans::clear() {
  const std::scoped_lock lock(mutex_);
  by_text_.clear();
  entries_.clear();
  bytes_ = 0;
}

std::size_t EncodedSpans::bytes() const {
  const std::scoped_lock lock(mutex_);
  return bytes_;
}

}  // namespace tessera
