// Computes a 128-bit hash of content, for cache keys. Equal bytes give equal hashes on every machine and in every
// version. The hash is not cryptographic.
//
//   Hasher h; h.add(graph_text); h.add(std::int64_t{bucket}); std::string key = h.finish().hex();
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera {

struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  std::string hex() const;  // 32 digits
  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

class Hasher {
 public:
  // Adds the bytes and their number, so that add("ab"), add("c") differs from add("a"), add("bc").
  void add(std::string_view bytes);
  void add(const char* text) { add(std::string_view(text)); }
  template <class T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void add(T value) { add_word(static_cast<std::uint64_t>(value)); }
  void add(double value);
  Hash128 finish() const;

 private:
  void add_word(std::uint64_t word);
  std::uint64_t a_ = 0x9e3779b97f4a7c15ull;
  std::uint64_t b_ = 0xc2b2ae3d27d4eb4full;
};

}  // namespace tessera
