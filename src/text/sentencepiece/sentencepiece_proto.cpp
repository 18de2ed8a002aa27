#include "tessera/text/sentencepiece/sentencepiece_proto.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "tessera/text/sentencepiece/proto_fields.h"

namespace tessera {
namespace {

using namespace proto_fields;

// The bytes of a field normalizer_spec with an empty charsmap, and with add_dummy_prefix and remove_extra_whitespaces
// off. If these bytes are appended to a file, they replace the file's own settings, because the last occurrence of a
// field counts.
constexpr std::string_view kNoNormalization("\x1a\x06\x12\x00\x18\x00\x20\x00", 8);

struct ProtoField {
  std::uint64_t number = 0;
  std::uint64_t varint = 0;   // wire type 0
  std::string_view bytes;     // wire type 2, and the four bytes of type 5
  std::string_view encoding;  // the whole field, key included
};

// Reads the fields of one message in order.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}
  bool done() const { return pos_ == bytes_.size(); }

  // Reads the next field. Returns nothing if the bytes are not a field. Precondition: !done().
  std::optional<ProtoField> next() {
    const std::size_t begin = pos_;
    ProtoField field;
    const auto key = varint();
    if (!key) return std::nullopt;
    field.number = *key >> 3;
    switch (*key & 7) {
      case 0: {
        const auto value = varint();
        if (!value) return std::nullopt;
        field.varint = *value;
        break;
      }
      case 1:
        if (!take(8)) return std::nullopt;
        break;
      case 2: {
        const auto length = varint();
        const std::size_t at = pos_;
        if (!length || !take(*length)) return std::nullopt;
        field.bytes = bytes_.substr(at, *length);
        break;
      }
      case 5: {
        const std::size_t at = pos_;
        if (!take(4)) return std::nullopt;
        field.bytes = bytes_.substr(at, 4);
        break;
      }
      default: return std::nullopt;
    }
    field.encoding = bytes_.substr(begin, pos_ - begin);
    return field;
  }

 private:
  bool take(std::uint64_t length) {
    if (length > bytes_.size() - pos_) return false;
    pos_ += length;
    return true;
  }
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && pos_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[pos_++]);
      value |= std::uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view bytes_;
  std::size_t pos_ = 0;
};

// Calls visit(field) for each field; returns false if the bytes are not a message.
template <class Visit>
bool for_each_field(std::string_view bytes, Visit visit) {
  ProtoReader reader(bytes);
  while (!reader.done()) {
    const auto field = reader.next();
    if (!field) return false;
    visit(*field);
  }
  return true;
}

}  // namespace

Result<std::vector<SentencePiece>> read_pieces(std::string_view bytes, const std::string& name) {
  std::vector<SentencePiece> pieces;
  bool inner = true;
  const bool outer = for_each_field(bytes, [&](const ProtoField& field) {
    if (field.number != kPieces) return;
    SentencePiece& piece = pieces.emplace_back();
    inner = inner && for_each_field(field.bytes, [&](const ProtoField& item) {
              if (item.number == kPieceText) piece.text = item.bytes;
              if (item.number == kPieceScore && item.bytes.size() == sizeof piece.score)
                std::memcpy(&piece.score, item.bytes.data(), sizeof piece.score);
              if (item.number == kPieceKind) piece.kind = item.varint;
            });
  });
  if (!outer || !inner) return invalid_argument(name + " is not a SentencePiece model: not a protocol buffer");
  return pieces;
}

Result<SentencePieceProto> SentencePieceProto::parse(std::string_view bytes, const std::string& name) {
  SentencePieceProto out;
  bool inner = true;
  const bool outer = for_each_field(bytes, [&](const ProtoField& field) {
    if (field.number == kSelfTestData) return;
    out.without_normalization += field.encoding;
    if (field.number == kTrainerSpec) {
      inner = inner && for_each_field(field.bytes, [&](const ProtoField& item) {
                if (item.number == kTreatWhitespaceAsSuffix) out.whitespace_as_suffix = item.varint != 0;
              });
    }
    if (field.number == kNormalizerSpec) {
      inner = inner && for_each_field(field.bytes, [&](const ProtoField& item) {
                if (item.number == kPrecompiledCharsmap) out.charsmap = item.bytes;
                if (item.number == kAddDummyPrefix) out.add_dummy_prefix = item.varint != 0;
                if (item.number == kRemoveExtraWhitespaces) out.remove_extra_whitespaces = item.varint != 0;
              });
    }
  });
  if (!outer || !inner) return invalid_argument(name + " is not a SentencePiece model: not a protocol buffer");
  out.without_normalization += kNoNormalization;
  return out;
}

}  // namespace tessera
