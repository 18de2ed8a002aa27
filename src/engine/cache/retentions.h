// Decides which texts the prefix cache evicts last, because clients want to continue them (RetentionHint). A retained
// text is marked at a few places of the cache. A place's level is the highest priority of the texts that are marked
// there. A retention only changes the order of eviction, so no request fails because of it or waits for it. A retention
// ends in six cases: its time is over, its session is released, its session gets a later text, no part of its text can
// be reused any more, too many other texts are retained, or the cache is flushed.
//
// With n marks, to add or remove a mark takes O(log n) time. While there are no marks, level() costs almost nothing.
//
// Pure bookkeeping; used by one thread. The caller passes the current time.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tessera/engine/cache/retention_hint.h"

namespace tessera {

struct RetentionStats {
  std::int64_t texts = 0;    // number of texts that are retained now
  std::int64_t evicted = 0;  // pages and checkpoints that were evicted while they were retained
};

class Retentions {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // kMost limits the number of texts. kMostMarks limits the number of marks of all texts together. If a new text would
  // exceed kMost, the owner with the most texts loses its text that expires first. If the new text would exceed only
  // kMostMarks, the owner with the most marks loses its text that expires first. A text with a long window has hundreds
  // of marks. A text with more than kMostMarks marks of its own is not retained.
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kMostMarks = std::size_t{1} << 18;
  // end() stops after this many marks, so that a step of the engine never waits long for it.
  static constexpr std::size_t kMarksAtOnce = 4096;
  static constexpr std::size_t kWhole = SIZE_MAX;

  // A whole node of the cache (`group` is kWhole), or the node's page or checkpoint in one cache group.
  struct Place {
    void* node = nullptr;
    std::size_t group = kWhole;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  // A function of the object that sorts places by their levels. The function takes `place` out of the order and calls
  // `change`, which may change the level of `place`. The function then puts `place` back if the order had it before.
  using Reorder = std::function<void(Place place, const std::function<void()>& change)>;

  explicit Retentions(Reorder reorder) : reorder_(std::move(reorder)) {}
  Retentions(const Retentions&) = delete;
  Retentions& operator=(const Retentions&) = delete;

  bool empty() const { return texts_.empty(); }
  std::int64_t count() const { return static_cast<std::int64_t>(texts_.size()); }
  // Returns the highest priority of the texts that are marked at a place; 0 if there are none.
  std::int64_t level(Place place) const;

  // Marks a text at `places`, and retains it from `now` on. The text replaces the last text of its session. If `places`
  // is empty, no text is retained, and the session's last text stays unless the hint releases the session.
  void retain(const RetentionHint& hint, std::span<const Place> places, Time now);
  // Ends the retention of a session's text. Returns whether a text was retained.
  bool release(const std::string& session);
  // Ends retentions whose time is over, the earliest first. Stops once the ended retentions had kMarksAtOnce marks or
  // more. The next call continues.
  void end(Time now);
  // Ends all retentions, but calls no Reorder. The caller must sort all places again.
  void clear();

  // Records that a place is about to vanish, and removes the marks there. Then drops a text if (a) it has no mark left
  // at all, or (b) `place` is in a cache group and the text has no mark left in any cache group. In case (b), the pages
  // of the text's window, or its recurrent state, are lost, so no sequence can continue the text. Precondition: the
  // place is no longer in the order of places (Reorder).
  void forget(Place place);
  // Gives the marks of a node to another node. Precondition: both places are whole nodes, and neither is in the order
  // of places at the moment.
  void move(Place from, Place to);

 private:
  using TextId = std::uint64_t;
  using MarkId = std::uint64_t;
  struct Text {
    std::string session;
    std::string owner;
    double seconds = 0;
    std::int64_t priority = 0;
    Time until{};
    std::set<MarkId> marks;
    std::size_t group_marks = 0;  // how many of the marks are in a cache group
  };
  struct Owner {
    std::set<std::pair<Time, TextId>> texts;  // sorted by the time at which the retention of a text ends
    std::size_t marks = 0;                    // number of marks of all texts of this owner
  };
  // All marks at one place.
  struct Mark {
    Place place;
    std::set<std::pair<std::int64_t, TextId>> texts;  // sorted by priority
  };

  void make_room(std::size_t marks);
  void mark(TextId id, Place place);
  void add_mark(TextId id, MarkId mark);
  void remove_mark(TextId id, MarkId mark);
  void drop(TextId id);

  Reorder reorder_;
  std::unordered_map<TextId, Text> texts_;
  std::unordered_map<std::string, TextId> sessions_;
  std::set<std::pair<Time, TextId>> ends_;
  std::map<std::string, Owner> owners_;  // only owners that have texts
  std::unordered_map<MarkId, Mark> marks_;
  std::map<Place, MarkId> places_;
  std::size_t num_marks_ = 0;  // number of marks of all texts
  std::uint64_t last_id_ = 0;
};

}  // namespace tessera
