#include "tessera/engine/scheduler.h"

#include <algorithm>

namespace tessera {

void Scheduler::admit() {
  while (!waiting_.empty() && static_cast<std::int64_t>(running_.size()) < options_.max_running) {
    Sequence& sequence = *waiting_.front();
    // The last token's keys and values are never needed.
    const std::int64_t tokens =
        sequence.prompt_tokens() + std::max<std::int64_t>(sequence.request.max_new_tokens - 1, 0);
    Result<std::vector<PageId>> pages = pages_.take(pages_.pages_for(tokens));
    if (!pages.ok()) return;  // first come, first served: nobody overtakes
    sequence.pages = *std::move(pages);
    sequence.tokens.reserve(static_cast<std::size_t>(sequence.prompt_tokens() + sequence.request.max_new_tokens));
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// Whether the next forward is of scored sequences; where both kinds wait, the one that did not run last.
bool Scheduler::scores_next() const {
  const auto scores = [](const std::unique_ptr<Sequence>& s) { return s->request.score; };
  if (std::none_of(running_.begin(), running_.end(), scores)) return false;
  return std::all_of(running_.begin(), running_.end(), scores) || !scored_last_;
}

bool Scheduler::has_scored() const {
  const auto scores = [](const std::unique_ptr<Sequence>& s) { return s->request.score; };
  return std::any_of(running_.begin(), running_.end(), scores) || std::any_of(waiting_.begin(), waiting_.end(), scores);
}

// Its last token is sampled, or will be.
bool Scheduler::is_done(const Sequence& sequence) {
  return !sequence.request.score && sequence.generated() >= sequence.request.max_new_tokens;
}

void Scheduler::next(ScheduledBatch& scheduled) {
  admit();
  scheduled.clear(static_cast<std::size_t>(options_.num_cache_groups));
  scored_last_ = scores_next();
  std::int64_t budget = options_.chunk;
  const auto uncomputed = [](const Sequence& s) { return static_cast<std::int64_t>(s.tokens.size()) - s.computed; };
  const auto is_decode = [&](const Sequence& s) { return s.generated() > 0 && uncomputed(s) == 1; };
  for (const bool decodes : {true, false}) {
    for (const auto& sequence : running_) {
      if (sequence->request.score != scored_last_ || is_decode(*sequence) != decodes) continue;
      const std::int64_t count = is_done(*sequence) ? 0 : std::min(budget, uncomputed(*sequence));
      if (count > 0) append(*sequence, count, scheduled);
      budget -= count;
    }
  }
  for (CacheGroupBatch& group : scheduled.batch.groups) group.page_tables.resize(scheduled.entries.size());
}

void Scheduler::append(Sequence& sequence, std::int64_t count, ScheduledBatch& scheduled) const {
  ForwardBatch& batch = scheduled.batch;
  const auto total = static_cast<std::int64_t>(sequence.tokens.size());
  const auto first_token = static_cast<std::int32_t>(batch.input_ids.size());
  const std::int64_t page_size = pages_.page_size();
  for (std::int64_t position = sequence.computed; position < sequence.computed + count; ++position) {
    const auto at = static_cast<std::size_t>(position);
    batch.input_ids.push_back(sequence.tokens[at]);
    // The newest token is taken from where the last step left it, as a step that runs ahead of the host must.
    batch.input_rows.push_back(position == total - 1 && sequence.generated() > 0 ? sequence.last_row : -1);
    batch.positions.push_back(static_cast<std::int32_t>(position));
    const PageId page = sequence.pages[static_cast<std::size_t>(position / page_size)];
    const SlotId slot(static_cast<std::int32_t>(page.value() * page_size + position % page_size));
    for (CacheGroupBatch& group : batch.groups) group.slots.push_back(slot);
  }
  const std::int64_t kv_len = sequence.computed + count;
  batch.query_lens.push_back(static_cast<std::int32_t>(count));
  batch.kv_lens.push_back(static_cast<std::int32_t>(kv_len));
  const auto used_pages = static_cast<std::ptrdiff_t>(pages_.pages_for(kv_len));
  for (CacheGroupBatch& group : batch.groups) {
    if (group.page_tables.size() <= scheduled.entries.size()) group.page_tables.emplace_back();
    std::vector<PageId>& table = group.page_tables[scheduled.entries.size()];
    table.reserve(sequence.pages.size());  // it grows with the sequence, and not by a page at a time
    table.assign(sequence.pages.begin(), sequence.pages.begin() + used_pages);
  }

  ScheduledBatch::Entry entry{.sequence = &sequence,
                              .new_tokens = count,
                              .first_row = batch.num_wanted_rows(),
                              .num_rows = 0,
                              .next_token = total};
  const bool score = sequence.request.score;
  scheduled.wants_logits |= score;
  for (std::int64_t i = score ? 0 : count - 1; i < count; ++i) {
    if (!score && kv_len < total) break;  // an inner chunk of a prompt: no row is wanted
    batch.wanted_rows.push_back(first_token + static_cast<std::int32_t>(i));
    const SamplingParams& params = sequence.request.sampling;
    scheduled.sampling.push_back(
        score ? SampleRow{}
              : SampleRow{.temperature = static_cast<float>(params.temperature),
                          .top_k = static_cast<std::int32_t>(std::min<std::int64_t>(params.top_k, INT32_MAX)),
                          .top_p = static_cast<float>(params.top_p),
                          .seed = sequence.seed,
                          .choice = 0,
                          .position = static_cast<std::int32_t>(total)});
    ++entry.num_rows;
  }
  scheduled.entries.push_back(entry);
}

void Scheduler::mark_submitted(const ScheduledBatch& scheduled) {
  // A forward that samples writes last_ids anew: rows of sequences that are not in it are gone.
  if (!scheduled.wants_logits && scheduled.batch.num_wanted_rows() > 0) forget_rows();
  for (const ScheduledBatch::Entry& entry : scheduled.entries) {
    Sequence& sequence = *entry.sequence;
    sequence.computed += entry.new_tokens;
    if (sequence.request.score || entry.num_rows == 0) continue;
    sequence.tokens.emplace_back(0);
    ++sequence.pending;
    sequence.last_row = static_cast<std::int32_t>(entry.first_row);
  }
}

void Scheduler::forget_rows() {
  for (const auto& sequence : running_) sequence->last_row = -1;
}

void Scheduler::settle(const ScheduledBatch::Entry& entry, TokenId token) {
  entry.sequence->tokens[static_cast<std::size_t>(entry.next_token)] = token;
  --entry.sequence->pending;
}

void ScheduledBatch::clear(std::size_t num_cache_groups) {
  batch.input_ids.clear();
  batch.input_rows.clear();
  batch.positions.clear();
  batch.query_lens.clear();
  batch.kv_lens.clear();
  batch.wanted_rows.clear();
  batch.groups.resize(num_cache_groups);
  for (CacheGroupBatch& group : batch.groups) group.slots.clear();  // page tables keep their memory
  sampling.clear();
  entries.clear();
  wants_logits = false;
}

std::unique_ptr<Sequence> Scheduler::remove(RequestId id) {
  const auto has_id = [&](const std::unique_ptr<Sequence>& s) { return s->id == id; };
  std::unique_ptr<Sequence> found;
  if (const auto it = std::find_if(running_.begin(), running_.end(), has_id); it != running_.end()) {
    found = std::move(*it);
    running_.erase(it);
  } else if (const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), has_id); waiting != waiting_.end()) {
    found = std::move(*waiting);
    waiting_.erase(waiting);
  }
  if (found != nullptr) pages_.give_back(found->pages);
  return found;
}

}  // namespace tessera
