// Records which of the cache's slots have the keys and values of what drafts (LayerDrafts), beside the model's own.
//
// The next-token layer or draft model does not read forwards while no request drafts. A later request may find the
// pages of these forwards in the prefix cache.
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/engine/cache/cache_manager.h"
#include "tessera/engine/schedule/sequence.h"
#include "tessera/ops/contract/forward_batch.h"

namespace tessera {

class DraftKeys {
 public:
  // Precondition: a group of the cache keeps all tokens. What drafts always has its layers in such a group.
  explicit DraftKeys(const CacheManager& cache);

  // Records whether `count` rows of the batch, from row `first`, have keys. Call it with false for every row of a
  // forward of the model, because the row's slot may have belonged to another token before.
  void set(const ForwardBatch& batch, std::int64_t first, std::int64_t count, bool has_keys);
  // Returns the first position from `begin` to `end` without keys; `end` if there is none.
  std::int64_t first_missing(const Sequence& sequence, std::int64_t begin, std::int64_t end) const;
  // Returns the number of positions before `end` without keys.
  std::int64_t count_missing(const Sequence& sequence, std::int64_t end) const;

 private:
  bool has_keys(const Sequence& sequence, std::int64_t position) const;

  const CacheManager& cache_;
  std::size_t group_ = 0;       // the first group that keeps all tokens
  std::vector<bool> has_keys_;  // [slots of the group]
};

}  // namespace tessera
