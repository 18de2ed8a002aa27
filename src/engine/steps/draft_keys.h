// Records which slots of the KV cache have draft keys. Draft keys are the keys and values of the next-token layer or
// draft model (layer_drafts.h). This layer or draft model has cache layers of its own, beside the model's cache layers.
//
// A slot lacks draft keys if the model computed its token in a forward during which no request drafted. The next-token
// layer or draft model does not run over the tokens of such a forward. A later request may still reuse the slot's page
// from the prefix cache.
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
  // Precondition: the cache has a group that keeps the keys and values of all tokens. The layers that make drafts are
  // always in such a group.
  explicit DraftKeys(const CacheManager& cache);

  // Records `has_keys` for the slots of `count` rows of the batch, from row `first` on. After each forward of the
  // model, the caller first records false for all rows of the forward, because a row's slot may have belonged to
  // another token before.
  void set(const ForwardBatch& batch, std::int64_t first, std::int64_t count, bool has_keys);
  // Returns the first position from `begin` to `end` whose slot lacks draft keys; `end` if there is none.
  std::int64_t first_missing(const Sequence& sequence, std::int64_t begin, std::int64_t end) const;
  // Returns the number that identifies the sequence's page table. It changes when the sequence gets other pages.
  PageTableNumber table(const Sequence& sequence) const { return sequence.cache.groups[group_].number; }
  // Returns the number of positions before `end` whose slots lack draft keys.
  std::int64_t count_missing(const Sequence& sequence, std::int64_t end) const;

 private:
  bool has_keys(const Sequence& sequence, std::int64_t position) const;

  const CacheManager& cache_;
  std::size_t group_ = 0;       // the first group that keeps all tokens
  std::vector<bool> has_keys_;  // [slots of the group]: whether the slot has draft keys
};

}  // namespace tessera
