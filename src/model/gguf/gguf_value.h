// Gives access to one value of a GGUF file's metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The enumerators have the numbers that the file format uses.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr std::uint32_t kGgufTypes = 13;

std::string_view gguf_type_name(GgufType type);  // "UINT8", …
// Returns the size of one value in bytes; 0 for strings and arrays, whose size varies.
std::size_t gguf_type_bytes(GgufType type);

// A single value, or a list of values of one type (not a list of lists). Borrows the file's bytes. Each accessor
// returns nothing if the value has another type.
class GgufValue {
 public:
  // `bytes` contain `count` values. The caller has checked that they are complete and valid. A string consists of its
  // length in eight bytes, then its text in UTF-8. If the bytes are a mapped file that another process writes to, they
  // can change later. The accessors never read outside of them.
  GgufValue(GgufType type, std::optional<std::uint64_t> count, std::span<const std::byte> bytes)
      : type_(type), count_(count), bytes_(bytes) {}

  bool is_list() const { return count_.has_value(); }
  GgufType type() const { return type_; }  // for a list, the type of its elements
  std::uint64_t size() const { return count_.value_or(1); }
  // Returns the value's bytes as in the file, without its type.
  std::span<const std::byte> bytes() const { return bytes_; }

  // Returns an integer of any width; nothing for a UINT64 that needs all 64 bits.
  std::optional<std::int64_t> integer() const;
  std::optional<double> number() const;  // accepts integers too
  std::optional<bool> boolean() const;
  std::optional<std::string_view> string() const;
  std::optional<std::vector<std::int64_t>> integers() const;
  std::optional<std::vector<double>> numbers() const;
  std::optional<std::vector<bool>> booleans() const;
  std::optional<std::vector<std::string_view>> strings() const;

  // Returns the value as text for messages, at most one line: "4096", "\"llama\"", "151936 of STRING".
  std::string shown() const;

 private:
  std::optional<std::int64_t> integer_at(std::size_t index) const;
  std::optional<double> number_at(std::size_t index) const;

  GgufType type_;
  std::optional<std::uint64_t> count_;  // absent for a single value
  std::span<const std::byte> bytes_;
};

}  // namespace tessera
