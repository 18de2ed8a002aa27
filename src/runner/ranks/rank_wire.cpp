#include "tessera/runner/ranks/rank_wire.h"

#include <string>

#include "tessera/net/message.h"

namespace tessera {
namespace {

constexpr std::uint32_t kKind = 1;

}  // namespace

std::vector<std::byte> pack_answer(int rank, std::uint64_t number, const RankAnswer& answer) {
  std::vector<std::byte> bytes;
  MessageWriter to(bytes, kKind, number);
  to.word(rank);
  to.word(static_cast<std::int64_t>(answer.status.code()));
  to.list(std::span(answer.status.message()));
  to.word(answer.value);
  to.number(answer.digest);
  to.word(answer.replay_failed ? 1 : 0);
  to.list(std::span(answer.content));
  to.finish();
  return bytes;
}

Result<WiredAnswer> unpack_answer(std::span<const std::byte> bytes) {
  MessageReader from = TRY(MessageReader::open(bytes));
  WiredAnswer wired{.rank = static_cast<int>(TRY(from.choice("rank", INT32_MAX))), .number = from.message_number()};
  const auto code = static_cast<StatusCode>(TRY(from.choice("code", static_cast<std::int64_t>(StatusCode::kInternal))));
  const std::span<const char> message = TRY(from.list<char>("message"));
  if (code != StatusCode::kOk) wired.answer.status = Status(code, std::string(message.begin(), message.end()));
  wired.answer.value = TRY(from.word("value"));
  wired.answer.digest = TRY(from.number("digest"));
  wired.answer.replay_failed = TRY(from.choice("replay_failed", 1)) == 1;
  TRY(from.list("content", wired.answer.content));
  TRY(from.finish());
  return wired;
}

}  // namespace tessera
