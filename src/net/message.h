// Messages between the ranks of a group. They are flat byte buffers that can pass through memory or over a network.
//
// Layout, in the machine's byte order, which all ranks of a group must share:
//   header   magic, version and kind, number, bytes of the whole message       4 words of 8 bytes
//   body     words of 8 bytes, and lists: a word with the count, then the elements, padded with zeros to a whole word
//
//   MessageWriter writer(buffer, kind, number);
//   writer.word(7);
//   writer.list(std::span(batch.positions));
//   writer.finish();
//
//   MessageReader reader = TRY(MessageReader::open(buffer));
//   const std::int64_t size = TRY(reader.word("size"));
//   TRY(reader.list("positions", batch.positions));
//   TRY(reader.finish());
//
// A reader checks all data. For a truncated, too long or malformed message it returns kDataLoss, and the error names
// the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::uint64_t kMessageMagic = 0x31736b6e61727374;  // the bytes of the text "tsranks1"
inline constexpr std::size_t kMessageHeaderBytes = 32;

class MessageWriter {
 public:
  // Clears the buffer but keeps its memory, so memory is allocated only if the message is longer than any before.
  MessageWriter(std::vector<std::byte>& to, std::uint32_t kind, std::uint64_t number);

  void word(std::int64_t value) { append(&value, sizeof(value)); }
  void number(std::uint64_t value) { append(&value, sizeof(value)); }
  void real(double value) { append(&value, sizeof(value)); }
  template <class T, std::size_t N>
  void list(std::span<T, N> values) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    word(static_cast<std::int64_t>(values.size()));
    append(values.data(), values.size_bytes());
    pad();
  }
  template <class T>
  void list(const std::vector<T>& values) {
    list(std::span<const T>(values));
  }
  // Writes the length into the header. Nothing may be written afterwards.
  void finish();

 private:
  void append(const void* from, std::size_t bytes);
  void pad();

  std::vector<std::byte>& to_;
};

class MessageReader {
 public:
  // Checks the header. The bytes must begin at an address that is a multiple of 8, and must outlive the reader.
  static Result<MessageReader> open(std::span<const std::byte> message);

  std::uint32_t kind() const { return kind_; }
  std::uint64_t message_number() const { return message_number_; }

  Result<std::int64_t> word(std::string_view field);
  Result<std::uint64_t> number(std::string_view field);
  Result<double> real(std::string_view field);
  // Reads a number from 0 to `most`.
  Result<std::int64_t> choice(std::string_view field, std::int64_t most);
  // Returns a view of the list in the message's memory.
  template <class T>
  Result<std::span<const T>> list(std::string_view field) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 8);
    const std::span<const std::byte> bytes = TRY(list_bytes(field, sizeof(T)));
    return std::span<const T>(reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T));
  }
  // Copies the list. Allocates nothing if the vector already had the capacity.
  template <class T>
  Status list(std::string_view field, std::vector<T>& to) {
    const std::span<const T> values = TRY(list<T>(field));
    to.assign(values.begin(), values.end());
    return ok_status();
  }
  // Ends reading. Returns kDataLoss if unread bytes are left.
  Status finish() const;

 private:
  explicit MessageReader(std::span<const std::byte> message) : message_(message) {}
  Result<std::span<const std::byte>> take(std::string_view field, std::size_t bytes);
  Result<std::span<const std::byte>> list_bytes(std::string_view field, std::size_t element_bytes);
  template <class T>
  Result<T> take_word(std::string_view field) {
    T value;
    std::memcpy(&value, TRY(take(field, sizeof(T))).data(), sizeof(T));
    return value;
  }

  std::span<const std::byte> message_;
  std::size_t at_ = kMessageHeaderBytes;
  std::uint32_t kind_ = 0;
  std::uint64_t message_number_ = 0;
};

}  // namespace tessera
