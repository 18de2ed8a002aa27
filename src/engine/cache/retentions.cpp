#include "tessera/engine/cache/retentions.h"

#include <algorithm>

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
  if (seconds <= 0 || places.size() > kMostMarks) return;
  make_room(places.size());
  const TextId id = ++last_id_;
  const Time until = now + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  texts_.emplace(id, Text{.session = hint.session,
                          .owner = hint.owner,
                          .seconds = seconds,
                          .priority = priority,
                          .until = until,
                          .marks = {}});
  ends_.emplace(until, id);
  owners_[hint.owner].texts.emplace(until, id);
  if (!hint.session.empty()) sessions_.emplace(hint.session, id);
  for (const Place place : places) mark(id, place);
}

// Drops texts until there is room for another text with `marks` marks. If there are too many texts, the owner with the
// most texts loses its text that expires first. If only the marks are too many, the owner with the most marks loses its
// text that expires first. So an owner with many texts never makes an owner with few lose one.
void Retentions::make_room(std::size_t marks) {
  while (!texts_.empty()) {
    const bool too_many_texts = texts_.size() >= kMost;
    if (!too_many_texts && num_marks_ + marks <= kMostMarks) return;
    const auto most = std::ranges::max_element(owners_, {}, [&](const auto& named) {
      return too_many_texts ? named.second.texts.size() : named.second.marks;
    });
    drop(most->second.texts.begin()->second);
  }
}

void Retentions::mark(TextId id, Place place) {
  reorder_(place, [&] {
    const auto [at, is_new] = places_.try_emplace(place, last_id_ + 1);
    if (is_new) marks_.emplace(++last_id_, Mark{.place = place, .texts = {}});
    marks_.at(at->second).texts.emplace(texts_.at(id).priority, id);
    add_mark(id, at->second);
  });
}

void Retentions::add_mark(TextId id, MarkId mark) {
  Text& text = texts_.at(id);
  if (!text.marks.insert(mark).second) return;
  if (marks_.at(mark).place.group != kWhole) ++text.group_marks;
  ++owners_.at(text.owner).marks;
  ++num_marks_;
}

void Retentions::remove_mark(TextId id, MarkId mark) {
  Text& text = texts_.at(id);
  text.marks.erase(mark);
  if (marks_.at(mark).place.group != kWhole) --text.group_marks;
  --owners_.at(text.owner).marks;
  --num_marks_;
}

void Retentions::drop(TextId id) {
  const auto at = texts_.find(id);
  const Text text = std::move(at->second);
  for (const MarkId mark : text.marks) {
    const auto found = marks_.find(mark);
    reorder_(found->second.place, [&] {
      found->second.texts.erase({text.priority, id});
      if (!found->second.texts.empty()) return;
      places_.erase(found->second.place);
      marks_.erase(found);
    });
  }
  texts_.erase(at);
  ends_.erase({text.until, id});
  const auto owner = owners_.find(text.owner);
  owner->second.texts.erase({text.until, id});
  owner->second.marks -= text.marks.size();
  num_marks_ -= text.marks.size();
  if (owner->second.texts.empty()) owners_.erase(owner);
  if (!text.session.empty()) sessions_.erase(text.session);
}

bool Retentions::release(const std::string& session) {
  const auto known = sessions_.find(session);
  if (known == sessions_.end()) return false;
  drop(known->second);
  return true;
}

void Retentions::end(Time now) {
  const std::size_t before = num_marks_;
  while (!ends_.empty() && ends_.begin()->first <= now && before - num_marks_ < kMarksAtOnce)
    drop(ends_.begin()->second);
}

void Retentions::clear() {
  texts_.clear();
  sessions_.clear();
  ends_.clear();
  owners_.clear();
  marks_.clear();
  places_.clear();
  num_marks_ = 0;
}

void Retentions::forget(Place place) {
  if (places_.empty()) return;
  const auto at = places_.find(place);
  if (at == places_.end()) return;
  const auto gone = marks_.find(at->second);
  const auto texts = gone->second.texts;
  for (const auto& [priority, id] : texts) remove_mark(id, gone->first);
  marks_.erase(gone);
  places_.erase(at);
  for (const auto& [priority, id] : texts) {
    const Text& text = texts_.at(id);
    if (text.marks.empty() || (place.group != kWhole && text.group_marks == 0)) drop(id);
  }
}

// If both places are marked, moves the texts of the mark with fewer texts to the other mark. If the two marks share no
// texts, a moved text's new mark thus has at least twice as many texts as its old one had. A text therefore changes its
// mark at most O(log n) times, however often places move.
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
      remove_mark(id, fewer);
      add_mark(id, moved);
    }
    marks_.erase(fewer);
    there->second = moved;
  }
  marks_.at(moved).place = to;
}

}  // namespace tessera
