#include "tessera/engine/cache/cache_events.h"

#include "tessera/base/hash.h"

namespace tessera {

std::uint64_t block_id(std::uint64_t parent, const PrefixTokens& text, std::span<const TokenId> page_tokens,
                       std::span<const PageImage> images) {
  Hasher hasher;
  hasher.add(parent);
  if (parent == 0 && text.adapter != 0) {
    hasher.add(text.adapter_name);
    hasher.add(text.adapter_loads);
  }
  for (const TokenId id : page_tokens) hasher.add(id.value());
  for (const PageImage& image : images) {
    for (const std::int64_t number : {image.at, image.count, image.index}) hasher.add(number);
    hasher.add(image.content.high);
    hasher.add(image.content.low);
  }
  return hasher.finish().high;
}

void CacheEventLog::stored(std::uint64_t parent, std::uint64_t id, const PrefixTokens& text,
                           std::span<const TokenId> page_tokens, std::vector<PageImage> images) {
  BlocksStored* last = events_.empty() ? nullptr : std::get_if<BlocksStored>(&events_.back());
  if (parent == 0 || last == nullptr || last->ids.back() != parent) {
    BlocksStored first{.adapter = text.adapter, .adapter_name = std::string(text.adapter_name)};
    if (parent != 0) first.parent = parent;
    last = &std::get<BlocksStored>(events_.emplace_back(std::move(first)));
  }
  last->ids.push_back(id);
  last->tokens.insert(last->tokens.end(), page_tokens.begin(), page_tokens.end());
  last->images.push_back(std::move(images));
}

void CacheEventLog::removed(std::uint64_t id) {
  BlocksRemoved* last = events_.empty() ? nullptr : std::get_if<BlocksRemoved>(&events_.back());
  if (last == nullptr) last = &std::get<BlocksRemoved>(events_.emplace_back(BlocksRemoved{}));
  last->ids.push_back(id);
}

void CacheEventLog::cleared() {
  events_.clear();
  events_.emplace_back(BlocksCleared{});
}

}  // namespace tessera
