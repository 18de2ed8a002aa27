#include "tessera/runner/verify/soak_world.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "tessera/runner/memory/group_pages.h"

namespace tessera {

SoakWorld::SoakWorld(const RunnerOptions& options, std::span<const ir::CacheGroup> groups, std::int64_t vocab_size,
                     std::int64_t row_values, std::uint64_t seed)
    : options_(options),
      groups_(groups),
      longest_(options.context_length),
      vocab_size_(vocab_size),
      row_values_(row_values),
      random_(seed),
      free_(groups.size()) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::int64_t page = usable(g); page > 0; --page) free_[g].emplace_back(static_cast<std::int32_t>(page));
    const std::int64_t each = std::max<std::int64_t>(usable(g) / 2, 1);
    if (promised(g, longest_) > each) longest_ = each * options_.page_size;
  }
}

std::int64_t SoakWorld::draw(std::int64_t below) {
  return std::uniform_int_distribution<std::int64_t>(0, below - 1)(random_);
}

std::int64_t SoakWorld::log_uniform(std::int64_t most) {
  const double power = std::uniform_real_distribution<double>(0, std::log(static_cast<double>(most) + 1))(random_);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(power)), 1, most);
}

std::int64_t SoakWorld::promised(std::size_t group, std::int64_t length) const {
  if (groups_[group].kind == ir::CacheGroup::Kind::kState) return 1;
  const std::int64_t all = pages_for(length, options_.page_size);
  const std::int64_t window = groups_[group].window;
  return window == 0 ? all : std::min(all, pages_for(window - 1, options_.page_size) + 2);
}

std::int64_t SoakWorld::usable(std::size_t group) const {
  const std::int64_t pages = options_.num_pages[group] - 1;
  return groups_[group].kind == ir::CacheGroup::Kind::kState ? std::max<std::int64_t>(pages / 2, 1) : pages;
}

bool SoakWorld::has_room(std::int64_t length) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    std::int64_t pages = promised(g, length);
    for (const Sequence& sequence : live_) pages += promised(g, sequence.length);
    if (pages > usable(g)) return false;
  }
  return true;
}

// Adds new sequences while there is room.
void SoakWorld::admit() {
  const std::int64_t wanted = 1 + draw(options_.max_requests);
  while (std::ssize(live_) < wanted) {
    const std::int64_t prompt = log_uniform(longest_);
    const std::int64_t length = std::min(longest_, prompt + log_uniform(32));
    if (!has_room(length)) return;
    live_.push_back({.length = length,
                     .prompt = prompt,
                     .computed = 0,
                     .embedded = chance(0.1),
                     .images = {},
                     .held = std::vector<Held>(groups_.size())});
    if (gallery_ != nullptr && chance(0.5)) place_images(live_.back());
  }
}

void SoakWorld::place_images(Sequence& sequence) {
  std::int64_t token = 0;
  for (std::int64_t left = 1 + draw(3); left > 0; --left) {
    SoakImage& image = (*gallery_)[static_cast<std::size_t>(draw(std::ssize(*gallery_)))];
    token += draw(8);
    if (image.tokens == 0 || token + image.tokens > sequence.prompt) continue;
    sequence.images.push_back({.first_token = token, .image = &image});
    ++image.users;
    token += image.tokens;
  }
}

std::int32_t SoakWorld::image_row(const Sequence& sequence, std::int64_t token) {
  for (const PlacedImage& placed : sequence.images) {
    const std::int64_t index = token - placed.first_token;
    if (index >= 0 && index < placed.image->tokens) return static_cast<std::int32_t>(placed.image->first_row + index);
  }
  return -1;
}

// Inserts the page at a random place of the free list, so that other sequences get pages in a different order.
void SoakWorld::give_back(std::size_t group, PageId page) {
  free_[group].insert(free_[group].begin() + draw(std::ssize(free_[group]) + 1), page);
  given_back_.push_back({group, page});
}

void SoakWorld::end(std::size_t index) {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (const PageId page :
         std::span(live_[index].held[g].table).subspan(static_cast<std::size_t>(live_[index].held[g].first)))
      give_back(g, page);
  for (const PlacedImage& placed : live_[index].images) --placed.image->users;
  live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
}

void SoakWorld::cancel_some() {
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (!chance(0.02)) continue;
    end(i);
    ++cancelled_;
  }
}

void SoakWorld::leave_windows(Sequence& sequence) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Held& held = sequence.held[g];
    const std::int64_t next = sequence.computed;
    const std::int64_t first = pages_touched(groups_[g], next, next + 1, options_.page_size).begin;
    for (; held.first < first; ++held.first)
      give_back(g, std::exchange(held.table[static_cast<std::size_t>(held.first)], PageId(0)));
  }
}

std::int64_t SoakWorld::fitting(const Sequence& sequence, std::int64_t count) const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].kind == ir::CacheGroup::Kind::kState) continue;
    const std::int64_t pages = sequence.held[g].end() + std::ssize(free_[g]);
    count = std::min(count, pages * options_.page_size - sequence.computed);
  }
  return count;
}

void SoakWorld::append_pages(Sequence& sequence, std::int64_t length) {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Held& held = sequence.held[g];
    const std::int64_t end = pages_touched(groups_[g], sequence.computed, length, options_.page_size).end;
    while (held.end() < end) {
      held.table.push_back(free_[g].back());
      free_[g].pop_back();
    }
    if (groups_[g].kind == ir::CacheGroup::Kind::kState) {
      const PageId slot = held.table.front();
      const PageId kept(slot.value() + static_cast<std::int32_t>(usable(g)));
      batch_.slot_copies.push_back({.group = g, .from = slot, .to = kept});
    }
    append_slots(batch_.groups[g], groups_[g], sequence.computed, length, options_.page_size, held.table);
    batch_.groups[g].page_tables.push_back({.pages = held.table, .first_held = held.first, .number = held.number});
  }
}

void SoakWorld::append(Sequence& sequence, std::int64_t count, bool all_rows, bool turned) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = sequence.computed + i;
    const std::int32_t image = image_row(sequence, position);
    const std::int64_t next_row = std::ssize(embeddings_) / row_values_;
    const bool given =
        image < 0 && sequence.embedded && position < sequence.prompt && next_row < most_embeddings_ && chance(0.3);
    if (all_rows || i + 1 == count) batch_.wanted_rows.push_back(static_cast<std::int32_t>(batch_.num_tokens()));
    batch_.input_ids.emplace_back(static_cast<std::int32_t>(draw(vocab_size_)));
    batch_.embedding_rows.push_back(given ? static_cast<std::int32_t>(next_row) : image);
    for (std::int64_t column = 0; given && column < row_values_; ++column)
      embeddings_.push_back(static_cast<float>(draw(33) - 16) / 128.0F);
    batch_.input_rows.push_back(-1);
    batch_.positions.push_back(static_cast<std::int32_t>(position));
    if (!turned) continue;
    for (std::vector<std::int32_t>& axis : rope_positions_)
      axis.push_back(static_cast<std::int32_t>(draw(position + 1)));
  }
  append_pages(sequence, sequence.computed + count);
  sequence.computed += count;
  batch_.query_lens.push_back(static_cast<std::int32_t>(count));
  batch_.kv_lens.push_back(static_cast<std::int32_t>(sequence.computed));
}

const ForwardBatch& SoakWorld::next() {
  batch_ = ForwardBatch{};
  rope_positions_ = {};
  embeddings_.clear();
  batch_.groups.resize(groups_.size());
  given_back_.clear();
  for (Sequence& sequence : live_) leave_windows(sequence);
  cancel_some();
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (live_[i].computed < live_[i].length) continue;
    end(i);
    ++finished_;
  }
  admit();
  // The kinds of requests that this batch may contain: decodes (0), prompts (1), or both (2).
  const std::int64_t kind = draw(3);
  const std::int64_t budget = log_uniform(options_.max_tokens);
  const bool all_rows = chance(0.2);
  const bool turned = chance(0.5);
  std::int64_t left = budget;
  for (Sequence& sequence : live_) {
    if (left == 0 || batch_.num_requests() == options_.max_requests) break;
    const bool decodes = sequence.computed >= sequence.prompt;
    if (kind != 2 && decodes != (kind == 0)) continue;
    const std::int64_t wanted = decodes ? 1 : std::min(left, 1 + draw(sequence.prompt - sequence.computed));
    // The count is 0 if a chunk of another sequence has taken the free pages of a window group.
    const std::int64_t count = fitting(sequence, wanted);
    if (count == 0) continue;
    append(sequence, count, all_rows, turned);
    left -= count;
  }
  // If no sequence of the chosen kind could add a token, a random sequence of any kind continues.
  if (batch_.query_lens.empty()) {
    Sequence& sequence = live_[static_cast<std::size_t>(draw(std::ssize(live_)))];
    append(sequence, fitting(sequence, std::min(budget, sequence.length - sequence.computed)), all_rows, turned);
  }
  if (!embeddings_.empty()) batch_.embedding_writes = {{.first_row = 0, .values = embeddings_}};
  return batch_;
}

const ForwardBatch& SoakWorld::again() {
  for (SlotCopy& copy : batch_.slot_copies)
    if (copy.to > copy.from) std::swap(copy.from, copy.to);
  return batch_;
}

}  // namespace tessera
