// Defines distinct integer types that cannot be confused: a token id is not a slot, and a slot is not a page.
//
//   using PageId = StrongId<struct PageIdTag, int32_t>;
//   PageId page{7};  page.value() == 7;
//
// An id has the size and the cost of its integer, so a span of ids can be copied to the device as an array of integers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tessera {

template <class Tag, class Int>
class StrongId {
 public:
  using ValueType = Int;
  constexpr StrongId() = default;
  constexpr explicit StrongId(Int value) : value_(value) {}
  constexpr Int value() const { return value_; }
  // Returns the value as a subscript. Precondition: value() >= 0.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value_); }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  Int value_{};
};

using TokenId = StrongId<struct TokenIdTag, std::int32_t>;  // index into a vocabulary
using PageId = StrongId<struct PageIdTag, std::int32_t>;    // a page of the KV cache; page 0 is reserved
using SlotId = StrongId<struct SlotIdTag, std::int32_t>;    // one token in the KV cache: page × page_size + offset

}  // namespace tessera

template <class Tag, class Int>
struct std::hash<tessera::StrongId<Tag, Int>> {
  std::size_t operator()(tessera::StrongId<Tag, Int> id) const noexcept { return std::hash<Int>{}(id.value()); }
};
