// Writes values in MessagePack, each in its shortest form.
//
//   MsgpackWriter writer;
//   writer.array(2);
//   writer.number(1.5);
//   writer.text("a");
//   send(writer.bytes());
//
// After array(n) the caller must write n values. After map(n) it must write n keys, each followed by its value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// Returns the lowest `bytes` bytes of a number, the most significant one first.
std::string big_endian(std::uint64_t value, int bytes);

class MsgpackWriter {
 public:
  void array(std::size_t size) { head(size, {.fixed = 0x90, .fixed_most = 15, .sized = 0xdc}); }
  void map(std::size_t size) { head(size, {.fixed = 0x80, .fixed_most = 15, .sized = 0xde}); }
  void text(std::string_view text);
  void integer(std::uint64_t value);
  void integer(std::int64_t value);
  void number(double value);  // writes a double, even for a whole number
  void null() { byte(0xc0); }

  const std::string& bytes() const { return bytes_; }

 private:
  // Says how to write the header of a value that has a size, such as a text. If the size is at most `fixed_most`, the
  // header is one byte: `fixed` + size. Otherwise the header is the byte `sized` and 2 bytes with the size, or the byte
  // `sized` + 1 and 4 bytes with the size.
  struct Kind {
    std::uint8_t fixed = 0;
    std::size_t fixed_most = 0;
    std::uint8_t sized = 0;
  };
  void head(std::size_t size, Kind kind);
  void byte(std::size_t value) { bytes_.push_back(static_cast<char>(static_cast<std::uint8_t>(value))); }

  std::string bytes_;
};

}  // namespace tessera
