#include "tessera/engine/cache/retentions.h"

namespace tessera {

std::int64_t Retentions::level(Place place) const {
  if (places_.empty()) return 0;
  const auto at = places_.find(place);
  return at == places_.end() ? 0 : marks_.at(at->second).texts.rbegin()->first;
}

void Retentions::retain(const RetentionHint& hint, std::span<const Place> places, Time now) {
  const auto known = hint.session.empty() ? sessions_.end() : sessions_.find(hint.session);
  const Text* const last = known == sessions_.end() ? nullptr : &texts_.at(known->second);
  const double seconds = hint.seconds.value_or(last == nullptr ? 0 : last->seconds);
  const std::int64_t priority =
      hint.priority.value_or(last == nullptr ? RetentionHint::kUsualPriority : last->priority);
  if (seconds > 0 && places.empty()) return;
  if (last != nullptr) drop(known->second);
  if (seconds <= 0) return;
  while (!texts_.empty() && (texts_.size() >= kMost || num_marks_ + places.size() > kMostMarks))
    drop(ends_.begin()->second);
  const TextId id = ++last_id_;
  const Time until = now + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  texts_.emplace(id,
                 Text{.session = hint.session, .seconds = seconds, .priority = priority, .until = until, .marks = {}});
  ends_.emplace(until, id);
  if (!hint.session.empty()) sessions_.emplace(hint.session, id);
  for (const Place place : places) mark(id, place);
}

void Retentions::mark(TextId id, Place place) {
  reorder_(place, [&] {
    const auto [at, is_new] = places_.try_emplace(place, last_id_ + 1);
    if (is_new) marks_.emplace(++last_id_, Mark{.place = place, .texts = {}});
    marks_.at(at->second).texts.emplace(texts_.at(id).priority, id);
    note(id, at->second);
  });
}

void Retentions::note(TextId id, MarkId mark) {
  texts_.at(id).marks.push_back(mark);
  ++num_marks_;
}

void Retentions::drop(TextId id) {
  const auto at = texts_.find(id);
  const Text text = std::move(at->second);
  num_marks_ -= text.marks.size();
  for (const MarkId mark : text.marks) {
    const auto found = marks_.find(mark);
    if (found == marks_.end()) continue;
    reorder_(found->second.place, [&] {
      found->second.texts.erase({text.priority, id});
      if (!found->second.texts.empty()) return;
      places_.erase(found->second.place);
      marks_.erase(found);
    });
  }
  texts_.erase(at);
  ends_.erase({text.until, id});
  if (!text.session.empty()) sessions_.erase(text.session);
}

bool Retentions::release(const std::string& session) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) return false;
  drop(known->second);
  return true;
}

void Retentions::end(Time now) {
  while (!ends_.empty() && ends_.begin()->first <= now) drop(ends_.begin()->second);
}

void Retentions::clear() {
  while (!texts_.empty()) drop(texts_.begin()->first);
}

void Retentions::forget(Place place) {
  if (places_.empty()) return;
  const auto at = places_.find(place);
  if (at == places_.end()) return;
  marks_.erase(at->second);
  places_.erase(at);
}

// If both places have marks, those of the place with fewer texts join the others. So a text changes its marks at most
// O(log n) times, however often they move.
void Retentions::move(Place from, Place to) {
  if (places_.empty()) return;
  const auto at = places_.find(from);
  if (at == places_.end()) return;
  MarkId moved = at->second;
  places_.erase(at);
  const auto [there, is_new] = places_.try_emplace(to, moved);
  if (!is_new) {
    MarkId fewer = there->second;
    if (marks_.at(moved).texts.size() < marks_.at(fewer).texts.size()) std::swap(moved, fewer);
    Mark& joined = marks_.at(moved);
    for (const auto& [priority, id] : marks_.at(fewer).texts) {
      joined.texts.emplace(priority, id);
      note(id, moved);
    }
    marks_.erase(fewer);
    there->second = moved;
  }
  marks_.at(moved).place = to;
}

}  // namespace tessera
