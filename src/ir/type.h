// Defines element types, symbolic dimensions and shapes.
//
// A forward's graph is built once with symbolic sizes. A Bucket later assigns a number to every symbol. A dimension is
// an affine form of the symbols, divided by a constant without a remainder, such as (2*T + 8)/4.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera::ir {

// kFloat8E4M3 is only used to store keys and values (ops/cache/cache_type.h). No operator computes in this type.
enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kInt32, kInt64, kUInt8, kFloat8E4M3 };

std::size_t dtype_size(DType dtype);       // in bytes
std::string_view dtype_name(DType dtype);  // "f32" "f16" "bf16" "i32" "i64" "u8" "f8e4m3", as in the text form
std::optional<DType> parse_dtype(std::string_view name);
bool is_floating_point(DType dtype);  // f32, f16 and bf16: the types in which operators compute

enum class Symbol : std::uint8_t {
  kTokens,       // T: number of tokens in a forward, over all requests
  kRequests,     // B: number of requests in a forward
  kQueryLength,  // Q: number of tokens of the longest query in a forward
  kRows,         // R: number of rows whose logits are wanted
  kVisionRows,   // S: number of patches in a vision forward
  kPages,        // P: number of pages of the first cache group, or of slots in a state group
  kPages1,       // P1 … P3: number of pages of the other cache groups
  kPages2,
  kPages3,
};
inline constexpr int kNumSymbols = 9;
inline constexpr std::size_t kMaxCacheGroups = 4;

std::string_view symbol_name(Symbol symbol);  // "T", "B", … "P", "P1"
std::optional<Symbol> parse_symbol(std::string_view name);
// Returns the symbol for the number of pages of a cache group. Precondition: group < kMaxCacheGroups.
Symbol page_symbol(std::size_t group);

// Holds a number for every symbol. The numbers of symbols that a graph does not use are 0. A bucket is the key of a
// captured graph.
struct Bucket {
  std::array<std::int64_t, kNumSymbols> sizes{};

  std::int64_t operator[](Symbol s) const { return sizes[static_cast<std::size_t>(s)]; }
  std::int64_t& operator[](Symbol s) { return sizes[static_cast<std::size_t>(s)]; }
  friend auto operator<=>(const Bucket&, const Bucket&) = default;
  std::string to_string() const;  // for example "T=16 B=1", or "no sizes" if all are 0
};

// A dimension: (constant + Σ coefficient·symbol) / divisor, kept in lowest terms. The division must be exact for every
// bucket with which it is evaluated. Arithmetic never overflows. If the numbers of a dimension would not fit into 64
// bits, the dimension becomes unrepresentable and stays so. evaluate() and parse() return an error for such a
// dimension.
class Dim {
 public:
  constexpr Dim() = default;
  Dim(std::int64_t constant) : constant_(constant) {}                          // NOLINT(google-explicit-constructor)
  Dim(int constant) : constant_(constant) {}                                   // NOLINT(google-explicit-constructor)
  Dim(Symbol symbol) { coefficients_[static_cast<std::size_t>(symbol)] = 1; }  // NOLINT(google-explicit-constructor)

  Dim operator+(const Dim& other) const;
  Dim operator*(std::int64_t factor) const;
  // Returns this dimension divided by `divisor`. Precondition: divisor > 0.
  Dim divided_by(std::int64_t divisor) const;

  // Returns the dimension's number if it has no symbols and the division is exact. Otherwise returns nothing.
  std::optional<std::int64_t> constant() const;
  // Returns the dimension's number for a bucket. Returns an error if the division leaves a remainder or the result is
  // negative.
  Result<std::int64_t> evaluate(const Bucket& bucket) const;
  bool uses(Symbol symbol) const { return coefficients_[static_cast<std::size_t>(symbol)] != 0; }
  bool representable() const { return divisor_ != 0; }

  friend bool operator==(const Dim&, const Dim&) = default;
  std::string to_string() const;  // for example "T", "2*T", "(T + 4)/2", "64" or "unrepresentable"
  // Parses the output of to_string(). Any spacing is accepted, and the terms do not have to be reduced.
  static Result<Dim> parse(std::string_view text);

 private:
  // The numerators, which are the constant followed by the coefficient of each symbol.
  using Wide = std::array<__int128, kNumSymbols + 1>;
  Wide numerators() const;
  static Dim reduced(Wide numerators, __int128 divisor);
  friend bool same_element_count(const std::vector<Dim>& a, const std::vector<Dim>& b);

  std::int64_t constant_ = 0;
  std::array<std::int64_t, kNumSymbols> coefficients_{};
  std::int64_t divisor_ = 1;  // 0 if the dimension is unrepresentable
};

using Shape = std::vector<Dim>;  // outermost first, row-major

struct Type {
  DType dtype = DType::kFloat32;
  Shape shape = {};

  friend bool operator==(const Type&, const Type&) = default;
  std::string to_string() const;  // "bf16[T, 1024]"; a scalar is "f32[]"
};

// Returns the shape's dimensions as numbers. Returns the errors of Dim::evaluate(), and an error if the number of
// elements exceeds 2^62.
Result<std::vector<std::int64_t>> evaluate(const Shape& shape, const Bucket& bucket);
// Returns the size in bytes of a value of this type, without padding. Returns the errors of evaluate(), and an error if
// the size exceeds 2^62.
Result<std::int64_t> size_bytes(const Type& type, const Bucket& bucket);
// Returns whether the shapes have the same number of elements for every bucket. A reshape or a view requires this. The
// result is exact: [2*T, 64] and [T, 128] have the same number, and [T, 4] and [B, 4] do not. Returns false if a
// dimension is unrepresentable, or if the product of the constant factors exceeds 128 bits.
bool same_element_count(const Shape& a, const Shape& b);

}  // namespace tessera::ir
