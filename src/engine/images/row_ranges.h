// Allocates ranges of neighbouring rows of a pool. Each range takes the lowest place where it fits, so that the rows in
// use need as little memory as possible.
//
// Pure bookkeeping; used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

class RowRanges {
 public:
  // Makes rows 0 … count - 1 available. The pool never shrinks.
  void grow(std::int64_t count);
  std::int64_t size() const { return size_; }
  bool has_room(std::int64_t count) const { return find(count).has_value(); }

  // Takes `count` free rows and returns the first. Preconditions: count > 0, has_room(count).
  std::int64_t take(std::int64_t count);
  // Frees the range that begins at `first`. Precondition: take() returned `first`, which has not been given back since.
  void give_back(std::int64_t first);

 private:
  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };
  std::optional<std::int64_t> find(std::int64_t count) const;

  std::int64_t size_ = 0;
  std::vector<Range> taken_;  // sorted by first row
};

}  // namespace tessera
