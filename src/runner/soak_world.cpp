#include "tessera/runner/soak_world.h"

#include <algorithm>
#include <cmath>

#include "tessera/ops/attention.h"

namespace tessera {

SoakWorld::SoakWorld(const RunnerOptions& options, std::size_t cache_groups, std::int64_t vocab_size,
                     std::int64_t hidden_size, std::uint64_t seed)
    : options_(options),
      longest_(
          std::min(options.context_length, std::max<std::int64_t>(options.shared_pages() / 2, 1) * options.page_size)),
      vocab_size_(vocab_size),
      hidden_size_(hidden_size),
      random_(seed) {
  for (std::int64_t page = options.shared_pages(); page > 0; --page)
    free_.emplace_back(static_cast<std::int32_t>(page));
  batch_.groups.resize(cache_groups);
}

std::int64_t SoakWorld::draw(std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random_);
}

std::int64_t SoakWorld::log_uniform(std::int64_t most) {
  const double power = std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most) + 1))(random_);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(power)), 1, most);
}

// New sequences while there is room, with pages for all they come to.
void SoakWorld::admit() {
  const std::int64_t wanted = 1 + draw(options_.max_requests);
  while (std::ssize(live_) < wanted) {
    const std::int64_t prompt = log_uniform(longest_);
    const std::int64_t length = std::min(longest_, prompt + log_uniform(32));
    const std::int64_t pages = pages_for(length, options_.page_size);
    if (pages > std::ssize(free_)) return;
    Sequence sequence{.length = length, .prompt = prompt, .computed = 0, .embedded = chance(0.1), .pages = {}};
    sequence.pages.assign(free_.end() - pages, free_.end());
    free_.resize(free_.size() - static_cast<std::size_t>(pages));
    live_.push_back(std::move(sequence));
  }
}

void SoakWorld::end(std::size_t index) {
  Sequence& sequence = live_[index];
  // Other sequences get these pages soon, in another order.
  for (const PageId page : sequence.pages) free_.insert(free_.begin() + draw(std::ssize(free_) + 1), page);
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
}

void SoakWorld::cancel_some() {
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (!chance(0.02)) continue;
    end(i);
    ++cancelled_;
  }
}

void SoakWorld::append(Sequence& sequence, std::int64_t count, bool all_rows) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = sequence.computed + i;
    const bool given = sequence.embedded && position < sequence.prompt && chance(0.3);
    if (all_rows || i + 1 == count) batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens()));
    batch_.input_ids.emplace_back(given ? -1 : static_cast<std::int32_t>(draw(vocab_size_)));
    for (std::int64_t column = 0; given && column < hidden_size_; ++column)
      batch_.input_embeds.push_back(static_cast<float>(draw(33) - 16) / 128.0F);
    batch_.input_rows.push_back(-1);
    batch_.positions.push_back(static_cast<std::int32_t>(position));
    const PageId page = sequence.pages[static_cast<std::size_t>(position / options_.page_size)];
    for (CacheGroupBatch& group : batch_.groups)
      group.slots.emplace_back(
          static_cast<std::int32_t>(page.value() * options_.page_size + position % options_.page_size));
  }
  sequence.computed += count;
  batch_.query_lens.push_back(static_cast<std::int32_t>(count));
  batch_.kv_lens.push_back(static_cast<std::int32_t>(sequence.computed));
  const auto used = pages_for(sequence.computed, options_.page_size);
  for (CacheGroupBatch& group : batch_.groups)
    group.page_tables.emplace_back(sequence.pages.begin(), sequence.pages.begin() + used);
}

const ForwardBatch& SoakWorld::next() {
  const std::size_t groups = batch_.groups.size();
  batch_ = ForwardBatch{};
  batch_.groups.resize(groups);
  cancel_some();
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (live_[i].computed < live_[i].length) continue;
    end(i);
    ++finished_;
  }
  admit();
  // What this batch may have: decodes, prompts, or both.
  const std::int64_t kind = draw(3);
  const std::int64_t budget = log_uniform(options_.max_tokens);
  const bool all_rows = chance(0.2);
  std::int64_t left = budget;
  for (Sequence& sequence : live_) {
    if (left == 0 || batch_.num_requests() == options_.max_requests) break;
    const bool decodes = sequence.computed >= sequence.prompt;
    if (kind != 2 && decodes != (kind == 0)) continue;
    const std::int64_t count = decodes ? 1 : std::min(left, 1 + draw(sequence.prompt - sequence.computed));
    append(sequence, count, all_rows);
    left -= count;
  }
  // There were none of the kind: any sequence goes on.
  if (batch_.query_lens.empty()) {
    Sequence& sequence = live_[static_cast<std::size_t>(draw(std::ssize(live_)))];
    append(sequence, std::min(budget, sequence.length - sequence.computed), all_rows);
  }
  return batch_;
}

}  // namespace tessera
