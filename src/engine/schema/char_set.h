// Sets of Unicode code points as ranges. No set contains surrogates.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace tessera::schema {

struct CharRange {
  char32_t first = 0;
  char32_t last = 0;  // inclusive
};

class CharSet {
 public:
  CharSet() = default;
  explicit CharSet(std::vector<CharRange> ranges);
  static CharSet all();
  static CharSet of(char32_t code) { return CharSet({{code, code}}); }
  // Returns the set of these characters, which must be ASCII.
  static CharSet any_of(std::string_view characters);

  // Returns the ranges in order; at least one character lies between neighbouring ranges.
  const std::vector<CharRange>& ranges() const { return ranges_; }
  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t code) const;
  // Returns the number of characters.
  std::size_t size() const;

  CharSet operator|(const CharSet& other) const;
  CharSet operator&(const CharSet& other) const;
  CharSet operator-(const CharSet& other) const { return *this & other.complement(); }
  CharSet complement() const;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace tessera::schema
