#include "tessera/server/events/msgpack_writer.h"

#include <bit>

namespace tessera {

std::string big_endian(std::uint64_t value, int bytes) {
  std::string made;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) made.push_back(static_cast<char>(value >> shift & 0xff));
  return made;
}

void MsgpackWriter::head(std::size_t size, Kind kind) {
  if (size <= kind.fixed_most) return byte(kind.fixed + size);
  const bool is_short = size <= 0xffff;
  byte(is_short ? kind.sized : kind.sized + std::size_t{1});
  bytes_ += big_endian(size, is_short ? 2 : 4);
}

void MsgpackWriter::text(std::string_view text) {
  if (text.size() > 31 && text.size() <= 0xff) {
    byte(0xd9);
    byte(text.size());
  } else {
    head(text.size(), {.fixed = 0xa0, .fixed_most = 31, .sized = 0xda});
  }
  bytes_.append(text);
}

void MsgpackWriter::integer(std::uint64_t value) {
  if (value <= 0x7f) return byte(value);
  const int log2_bytes = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffffffff ? 2 : 3;
  byte(0xcc + static_cast<std::size_t>(log2_bytes));
  bytes_ += big_endian(value, 1 << log2_bytes);
}

void MsgpackWriter::integer(std::int64_t value) {
  if (value >= 0) return integer(static_cast<std::uint64_t>(value));
  if (value >= -32) return byte(static_cast<std::size_t>(value) & 0xff);
  const int log2_bytes = value >= INT8_MIN ? 0 : value >= INT16_MIN ? 1 : value >= INT32_MIN ? 2 : 3;
  byte(0xd0 + static_cast<std::size_t>(log2_bytes));
  bytes_ += big_endian(static_cast<std::uint64_t>(value), 1 << log2_bytes);
}

void MsgpackWriter::number(double value) {
  byte(0xcb);
  bytes_ += big_endian(std::bit_cast<std::uint64_t>(value), 8);
}

}  // namespace tessera
