#include "tessera/text/lists/piece_model.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "tessera/text/sentencepiece/proto_fields.h"
#include "tessera/text/sentencepiece/sentencepiece_tokenizer.h"

namespace tessera {
namespace {

using namespace proto_fields;

// The model_type of byte-pair encoding.
constexpr std::uint64_t kBpe = 2;

// Writes the fields of one message of a protocol buffer.
class Message {
 public:
  Message& number(std::uint32_t field, std::uint64_t value) {
    varint(std::uint64_t{field} << 3);
    varint(value);
    return *this;
  }
  Message& real(std::uint32_t field, float value) {
    varint(std::uint64_t{field} << 3 | 5);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& bytes(std::uint32_t field, std::string_view value) {
    varint(std::uint64_t{field} << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

std::string as_sentencepiece(const TokenLists& lists) {
  Message model;
  bool bytes = false;
  for (std::size_t id = 0; id < lists.tokens.size(); ++id) {
    const TokenKind kind = lists.kinds.empty() ? TokenKind::kNormal : lists.kinds[id];
    bytes |= kind == TokenKind::kByte;
    model.bytes(kPieces, Message()
                             .bytes(kPieceText, lists.tokens[id])
                             .real(kPieceScore, lists.scores[id])
                             .number(kPieceKind, static_cast<std::uint64_t>(kind))
                             .text());
  }
  model.bytes(kTrainerSpec, Message().number(kModelType, kBpe).number(kByteFallback, bytes ? 1 : 0).text());
  model.bytes(kNormalizerSpec, Message()
                                   .number(kAddDummyPrefix, lists.add_space_prefix.value_or(true) ? 1 : 0)
                                   .number(kRemoveExtraWhitespaces, 0)
                                   .text());
  return model.text();
}

}  // namespace

Result<TokenizerParts> make_piece_tokenizer(const TokenLists& lists) {
  if (lists.scores.size() != lists.tokens.size())
    return invalid_argument(fmt::format("{}: tokenizer.ggml.scores has {} entries; accepted: {}, one for each token",
                                        lists.file, lists.scores.size(), lists.tokens.size()));
  return make_sentencepiece(as_sentencepiece(lists), lists.file, SentencePieceModel::Prefix::kEveryText, Json::array());
}

}  // namespace tessera
