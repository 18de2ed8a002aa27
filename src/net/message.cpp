#include "tessera/net/message.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

constexpr std::size_t kWord = 8;
constexpr std::uint32_t kVersion = 1;

struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t kind;
  std::uint64_t number;
  std::uint64_t bytes;  // bytes of the whole message
};
static_assert(sizeof(Header) == kMessageHeaderBytes);

}  // namespace

MessageWriter::MessageWriter(std::vector<std::byte>& to, std::uint32_t kind, std::uint64_t number) : to_(to) {
  to_.clear();
  const Header header{.magic = kMessageMagic, .version = kVersion, .kind = kind, .number = number, .bytes = 0};
  append(&header, sizeof(header));
}

void MessageWriter::append(const void* from, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(from);
  to_.insert(to_.end(), first, first + bytes);
}

void MessageWriter::pad() { to_.resize((to_.size() + kWord - 1) / kWord * kWord); }

void MessageWriter::finish() {
  const std::uint64_t bytes = to_.size();
  std::memcpy(to_.data() + offsetof(Header, bytes), &bytes, sizeof(bytes));
}

Result<MessageReader> MessageReader::open(std::span<const std::byte> message) {
  if (message.size() < sizeof(Header))
    return data_loss(fmt::format("a message of {} bytes; its header alone has {}", message.size(), sizeof(Header)));
  Header header;
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.magic != kMessageMagic || header.version != kVersion)
    return data_loss(fmt::format("no message of version {}: it begins with {:#x}, version {}", kVersion, header.magic,
                                 header.version));
  if (header.bytes != message.size())
    return data_loss(fmt::format("a message of {} bytes that says it has {}", message.size(), header.bytes));
  MessageReader reader(message);
  reader.kind_ = header.kind;
  reader.message_number_ = header.number;
  return reader;
}

Result<std::span<const std::byte>> MessageReader::take(std::string_view field, std::size_t bytes) {
  if (bytes > message_.size() - at_) {
    return data_loss(fmt::format("a message ends within {}: {} bytes are left of the {} that it needs", field,
                                 message_.size() - at_, bytes));
  }
  const std::span<const std::byte> taken = message_.subspan(at_, bytes);
  at_ += bytes;
  return taken;
}

Result<std::span<const std::byte>> MessageReader::list_bytes(std::string_view field, std::size_t element_bytes) {
  const std::uint64_t count = TRY(number(field));
  if (count > (message_.size() - at_) / element_bytes) {
    return data_loss(fmt::format("a message ends within {}: {} elements, and {} bytes are left", field, count,
                                 message_.size() - at_));
  }
  const std::span<const std::byte> elements = TRY(take(field, count * element_bytes));
  const std::size_t padding = (kWord - elements.size() % kWord) % kWord;
  const std::span<const std::byte> zeros = TRY(take(field, padding));
  if (std::ranges::any_of(zeros, [](std::byte b) { return b != std::byte{}; }))
    return data_loss(fmt::format("the list {} of a message is padded with other bytes than zeros", field));
  return elements;
}

Result<std::int64_t> MessageReader::word(std::string_view field) { return take_word<std::int64_t>(field); }
Result<std::uint64_t> MessageReader::number(std::string_view field) { return take_word<std::uint64_t>(field); }
Result<double> MessageReader::real(std::string_view field) { return take_word<double>(field); }

Result<std::int64_t> MessageReader::choice(std::string_view field, std::int64_t most) {
  const std::int64_t value = TRY(word(field));
  if (value >= 0 && value <= most) return value;
  return data_loss(fmt::format("{} of a message is {}; 0 to {} is accepted", field, value, most));
}

Status MessageReader::finish() const {
  if (at_ == message_.size()) return ok_status();
  return data_loss(fmt::format("{} bytes are left behind a message", message_.size() - at_));
}

}  // namespace tessera
