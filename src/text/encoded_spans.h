// Keeps the ids of texts that were encoded before. Agents send a growing conversation again and again. Added tokens,
// such as "<|im_end|>", divide a conversation into messages, and the text between two added tokens is encoded on its
// own. So only new messages need to be encoded.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/strong_id.h"

namespace tessera {

// Threads: all functions may run at the same time.
class EncodedSpans {
 public:
  using Ids = std::shared_ptr<const std::vector<TokenId>>;

  // Keeps at most `most_bytes` of texts and ids. The least recently used text is dropped first.
  explicit EncodedSpans(std::size_t most_bytes) : most_bytes_(most_bytes) {}

  // Returns the ids of a text; null if they are not kept. `kind` distinguishes ways to encode the same text.
  Ids find(std::string_view text, unsigned kind);
  // Keeps the ids of a text, unless it is so short that encoding it is cheap, or so long that it would displace much.
  void add(std::string_view text, unsigned kind, std::span<const TokenId> ids);

  // Drops all texts.
  void clear();

  // Returns the bytes of the texts and ids that are kept.
  std::size_t bytes() const;

  static constexpr std::size_t kLeastBytes = 256;  // shorter texts are not kept
  static constexpr std::size_t kMostShare = 8;     // texts that take more than most_bytes / kMostShare are not kept

 private:
  struct Entry {
    std::string text;
    unsigned kind;
    Ids ids;
  };
  using Entries = std::list<Entry>;
  using Key = std::pair<unsigned, std::string_view>;  // kind and text of an entry

  static std::size_t bytes_of(std::string_view text, std::size_t num_ids) {
    return text.size() + num_ids * sizeof(TokenId) + sizeof(Entry);
  }

  const std::size_t most_bytes_;
  mutable std::mutex mutex_;
  std::size_t bytes_ = 0;
  Entries entries_;  // the most recently used first
  std::map<Key, Entries::iterator> by_text_;
};

}  // namespace tessera
