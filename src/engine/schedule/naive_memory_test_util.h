// A naive model of what a scheduler's steps write to the KV cache, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/schedule/scheduler.h"
#include "tessera/engine/schedule/scheduler_test_util.h"

namespace tessera::test {

// A naive model of the KV cache. It records whose tokens each slot holds after the steps so far. For each slot that a
// batch reads, it checks that the batch finds its own tokens there.
class NaiveMemory {
 public:
  explicit NaiveMemory(const CacheOptions& cache) : cache_(cache) {}

  // Returns "" if the step is correct, and otherwise a text that names the fault.
  std::string check(const ScheduledBatch& step, const SchedulerOptions& options) {
    const ForwardBatch& batch = step.batch;
    if (!batch.check().ok()) return batch.check().message();
    if (batch.num_tokens() > options.limits.max_tokens) return "above the chunk";
    if (batch.num_requests() > options.max_running) return "above max_running";
    token_ = 0;
    written_.clear();
    for (const SlotCopy& copy : batch.slot_copies) {
      if (!cache_.groups[copy.group].is_state()) return "a copy in a group without states";
      content_[{copy.group, copy.to.value()}] = content_[{copy.group, copy.from.value()}];
      ++copies_;
    }
    std::size_t rows = 0;
    for (std::size_t b = 0; b < step.entries.size(); ++b) {
      if (std::string fault = check_entry(step, b); !fault.empty()) return fault;
      rows += static_cast<std::size_t>(step.entries[b].prompt_rows) + (step.entries[b].row >= 0 ? 1 : 0);
    }
    for (const StateCheckpoint& checkpoint : batch.checkpoints)
      if (std::string fault = check_checkpoint(step, checkpoint); !fault.empty()) return fault;
    if (token_ != batch.input_ids.size() || rows != batch.wanted_rows.size()) return "more than its entries";
    for (std::size_t row = 0; row < step.sampling.size(); ++row)
      last_ids_[static_cast<std::int32_t>(row)] = 1000 + step.sampling[row].position;
    return "";
  }

 private:
  std::string check_entry(const ScheduledBatch& step, std::size_t b) {
    const ForwardBatch& batch = step.batch;
    const ScheduledBatch::Entry& entry = step.entries[b];
    const Sequence& s = *entry.sequence;
    const std::int64_t end = s.computed + entry.new_tokens;
    if (batch.query_lens[b] != entry.new_tokens || batch.kv_lens[b] != end) return "lengths";
    if (entry.new_tokens < 1) return "no token";
    const std::vector<std::uint64_t> prefixes = prefixes_of(s, end);
    for (std::size_t g = 0; g < cache_.groups.size(); ++g) {
      std::string fault = cache_.groups[g].is_state() ? check_state(batch.groups[g], g, b, s, prefixes)
                                                      : check_pages(batch.groups[g], g, b, s, prefixes);
      if (!fault.empty()) return cache_.groups[g].name + ": " + fault;
    }
    for (std::int64_t position = s.computed; position < end; ++position, ++token_) {
      if (batch.positions[token_] != position) return "position";
      const std::int32_t id =
          batch.input_rows[token_] < 0 ? batch.input_ids[token_].value() : last_ids_[batch.input_rows[token_]];
      if (id != token_at(s, position)) return "token " + std::to_string(position) + " is taken from a stale row";
    }
    const bool samples = !s.request.score && end == static_cast<std::int64_t>(s.tokens.size());
    if ((entry.row >= 0) != samples) return "a row too many or too few";
    if (samples && batch.wanted_rows[static_cast<std::size_t>(entry.row)] != static_cast<std::int32_t>(token_ - 1))
      return "row";
    return "";
  }

  // Returns a number for the token. It depends only on the position if the token is not sampled yet.
  static std::int32_t token_at(const Sequence& s, std::int64_t position) {
    const bool pending = position >= static_cast<std::int64_t>(s.tokens.size()) - s.pending;
    return static_cast<std::int32_t>(pending ? 1000 + position : s.tokens[static_cast<std::size_t>(position)].value());
  }

  // Returns, for each position before `end`, a hash of the tokens up to it.
  static std::vector<std::uint64_t> prefixes_of(const Sequence& s, std::int64_t end) {
    std::vector<std::uint64_t> prefixes;
    std::uint64_t prefix = 0;
    for (std::int64_t position = 0; position < end; ++position) {
      prefix = prefix * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(token_at(s, position)) + 1;
      prefixes.push_back(prefix);
    }
    return prefixes;
  }

  std::string check_pages(const CacheGroupBatch& group, std::size_t g, std::size_t b, const Sequence& s,
                          const std::vector<std::uint64_t>& prefixes) {
    const auto end = static_cast<std::int64_t>(prefixes.size());
    const std::int64_t window = cache_.groups[g].window;
    const std::span<const PageId> pages = group.page_tables[b].pages;
    if (static_cast<std::int64_t>(pages.size()) * kPageSize < end) return "pages";
    const auto held = std::count_if(pages.begin(), pages.end(), [](PageId page) { return page != PageId(0); });
    const std::int64_t chunk_pages = pages_for(end - s.computed - 1, kPageSize);
    if (window > 0 && held > window_pages(window, kPageSize) + chunk_pages) return "more pages than the window's";
    // All earlier tokens that the first row attends to must be in the cache.
    for (std::int64_t position = window > 0 ? std::max<std::int64_t>(s.computed - window + 1, 0) : 0; position < end;
         ++position) {
      const PageId page = pages[static_cast<std::size_t>(position / kPageSize)];
      const std::int64_t slot = page.value() * kPageSize + position % kPageSize;
      std::uint64_t& content = content_[{g, slot}];
      const std::uint64_t prefix = prefixes[static_cast<std::size_t>(position)];
      if (position < s.computed) {
        if (content != prefix) return "position " + std::to_string(position) + " holds other tokens";
        continue;
      }
      const std::size_t token = token_ + static_cast<std::size_t>(position - s.computed);
      if (group.slots[token].value() != slot || slot < kPageSize) return "slot";
      if (!written_.insert({g, slot}).second) return "slot of two tokens";
      content = prefix;
    }
    return "";
  }

  // Checks that the sequence's slot holds the state after its computed tokens (any content if none is computed), that
  // the new tokens name this slot, and that no other sequence of the step has it. Then records the state after the new
  // tokens.
  std::string check_state(const CacheGroupBatch& group, std::size_t g, std::size_t b, const Sequence& s,
                          const std::vector<std::uint64_t>& prefixes) {
    const std::int32_t slot = group.page_tables[b].pages[0].value();
    if (slot < 1 || slot >= cache_.groups[g].num_pages) return "slot";
    std::uint64_t& content = content_[{g, slot}];
    if (s.computed > 0 && content != prefixes[static_cast<std::size_t>(s.computed - 1)])
      return "the state is not that of the tokens before position " + std::to_string(s.computed);
    for (std::size_t i = static_cast<std::size_t>(s.computed); i < prefixes.size(); ++i)
      if (group.slots[token_ + i - static_cast<std::size_t>(s.computed)].value() != slot) return "a token's slot";
    if (!written_.insert({g, slot}).second) return "slot of two sequences";
    content = prefixes.back();
    return "";
  }

  std::string check_checkpoint(const ScheduledBatch& step, const StateCheckpoint& checkpoint) {
    if (!cache_.groups[checkpoint.group].is_state()) return "a checkpoint in a group without states";
    const ScheduledBatch::Entry& entry = step.entries[static_cast<std::size_t>(checkpoint.request)];
    if (checkpoint.rows < 1 || checkpoint.rows >= entry.new_tokens) return "a checkpoint outside the entry's rows";
    const std::int64_t end = entry.sequence->computed + checkpoint.rows;
    if (end % kPageSize != 0) return "a checkpoint within a page";
    const std::int32_t slot = checkpoint.slot.value();
    if (slot < 1 || slot >= cache_.groups[checkpoint.group].num_pages) return "a checkpoint's slot";
    if (!written_.insert({checkpoint.group, slot}).second) return "a checkpoint in a sequence's slot";
    content_[{checkpoint.group, slot}] = prefixes_of(*entry.sequence, end).back();
    ++checkpoints_;
    return "";
  }

  using Place = std::pair<std::size_t, std::int64_t>;  // a cache group and a slot in it
  const CacheOptions& cache_;
  std::map<Place, std::uint64_t> content_;  // hash of all tokens up to the token in the slot
  std::set<Place> written_;
  std::map<std::int32_t, std::int32_t> last_ids_;  // [row]; like in InputBuffers, a step overwrites only its own rows
  std::size_t token_ = 0;

 public:
  std::int64_t copies_ = 0;
  std::int64_t checkpoints_ = 0;
};

}  // namespace tessera::test
