// Which rows of a pool belong to whom: ranges of neighbours, each taken as low as it fits, so that the rows in use need
// as little memory as they can.
//
// A pure bookkeeper on one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera {

class RowRanges {
 public:
  // Rows 0 … count - 1 may be taken from now on. Never fewer than before.
  void grow(std::int64_t count);
  std::int64_t size() const { return size_; }
  bool has_room(std::int64_t count) const { return find(count).has_value(); }

  // First of `count` rows that are free. Preconditions: count > 0, has_room(count).
  std::int64_t take(std::int64_t count);
  // Precondition: `first` was returned by take(), and not given back since.
  void give_back(std::int64_t first);

 private:
  struct Range {
    std::int64_t begin;
    std::int64_t end;
  };
  std::optional<std::int64_t> find(std::int64_t count) const;

  std::int64_t size_ = 0;
  std::vector<Range> taken_;  // ascending
};

}  // namespace tessera
