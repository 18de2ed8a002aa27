// Events that say what changed in a prefix cache, for observers outside the engine. For example, a gateway uses them to
// send a prompt to a server whose cache already has the prompt's beginning.
//
// A block consists of the tokens of a full page. These tokens follow the tokens of the block's parent. A block's id is
// a 64-bit hash. The hash covers the adapter, and the tokens and images of the block and of all its ancestors. So two
// servers with the same page size compute equal ids for equal beginnings.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/strong_id.h"
#include "tessera/engine/cache/prefix_tokens.h"

namespace tessera {

// A chain of blocks that entered the cache. Each block is the parent of the next one.
struct BlocksStored {
  std::vector<std::uint64_t> ids{};
  std::optional<std::uint64_t> parent{};  // parent of the first block; none if that block begins a text
  std::vector<TokenId> tokens{};          // tokens of all blocks, in order; each block has as many as a page holds
  // [blocks]: the parts of images that lie in each block.
  std::vector<std::vector<PageImage>> images{};
  std::int64_t adapter = 0;    // ServedAdapter::number; 0: none
  std::string adapter_name{};  // the name that requests use
};
// Blocks that left the cache.
struct BlocksRemoved {
  std::vector<std::uint64_t> ids{};
};
// The cache is empty.
struct BlocksCleared {};

using CacheEvent = std::variant<BlocksStored, BlocksRemoved, BlocksCleared>;
using CacheEvents = std::vector<CacheEvent>;  // in the order in which they happened

// Receives the events of one step on the engine's thread, and must return soon.
using CacheEventSink = std::function<void(CacheEvents events)>;

// Returns the id of the block of `text` that holds `page_tokens`. `parent` is the id of the preceding block, or 0 if
// there is none. Only a block that begins a text has the adapter in its own hash. The ids of later blocks depend on the
// adapter through their parents' ids.
std::uint64_t block_id(std::uint64_t parent, const PrefixTokens& text, std::span<const TokenId> page_tokens,
                       std::span<const PageImage> images);

// Collects events until they are taken. Blocks that are stored one after another, each as the child of the one before
// it, become one event. Blocks that are removed one after another become one event too.
class CacheEventLog {
 public:
  // Adds a block. `parent` is 0 for a block that begins a text.
  void stored(std::uint64_t parent, std::uint64_t id, const PrefixTokens& text, std::span<const TokenId> page_tokens,
              std::vector<PageImage> images);
  void removed(std::uint64_t id);
  // Replaces the collected events by BlocksCleared, because the cache no longer has any of their blocks.
  void cleared();

  bool empty() const { return events_.empty(); }
  CacheEvents take() { return std::exchange(events_, {}); }

 private:
  CacheEvents events_;
};

}  // namespace tessera
