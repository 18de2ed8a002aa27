#include "tessera/text/sentencepiece/charsmap.h"

#include "tessera/text/unicode.h"

namespace tessera {
namespace {

// Grapheme clusters of at least this many bytes are looked up character by character.
constexpr std::size_t kLongCluster = 6;

std::uint32_t read_unit(std::string_view bytes) {
  std::uint32_t unit = 0;
  for (std::size_t i = 4; i-- > 0;) unit = (unit << 8) | static_cast<unsigned char>(bytes[i]);
  return unit;
}

// These functions return the fields of a unit of the double array (Darts-clone): its label, the offset of its children,
// whether an entry ends at the unit, and the value of an entry.
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }
bool ends_entry(std::uint32_t unit) { return (unit & 0x100u) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view blob, const std::string& what) {
  if (blob.size() < 4)
    return invalid_argument(what + ": " + std::to_string(blob.size()) + " bytes; accepted: 4 or more");
  const std::size_t length = read_unit(blob);
  blob.remove_prefix(4);
  if (length % 4 != 0 || length == 0 || length > blob.size()) {
    return invalid_argument(what + ": a trie of " + std::to_string(length) + " bytes where " +
                            std::to_string(blob.size()) + " follow; accepted: a multiple of 4 that is there");
  }
  Charsmap out;
  out.units_.reserve(length / 4);
  for (std::size_t at = 0; at < length; at += 4) out.units_.push_back(read_unit(blob.substr(at)));
  out.texts_ = blob.substr(length);
  if (const std::size_t fault = find_invalid_utf8(out.texts_); fault != std::string_view::npos) {
    return invalid_argument(what + ": the replacements are not UTF-8 at byte " + std::to_string(fault));
  }
  out.texts_ += '\0';
  return out;
}

template <class Visit>
void Charsmap::walk(std::string_view text, Visit visit) const {
  std::size_t node = offset_of(units_[0]);
  for (std::size_t pos = 0; pos < text.size(); ++pos) {
    const auto byte = static_cast<unsigned char>(text[pos]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) return;
    const std::uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) return;
    // Entries of a damaged map may end inside a character.
    const bool whole = pos + 1 == text.size() || (static_cast<unsigned char>(text[pos + 1]) & 0xC0) != 0x80;
    if (ends_entry(unit) && whole && !visit(pos + 1, value_of(units_[node]))) return;
  }
}

std::optional<Charsmap::Match> Charsmap::match_at(std::size_t length, std::uint32_t offset) const {
  if (offset >= texts_.size()) return std::nullopt;
  const std::string_view replacement = std::string_view(texts_).substr(offset);
  // A damaged map may point into the middle of a character.
  if (decode_utf8(replacement, 0).kind != Utf8Step::Kind::kCharacter) return std::nullopt;
  return Match{length, replacement.substr(0, replacement.find('\0'))};
}

std::optional<Charsmap::Match> Charsmap::shortest(std::string_view text) const {
  std::optional<Match> out;
  walk(text, [&](std::size_t length, std::uint32_t offset) {
    out = match_at(length, offset);
    return false;
  });
  return out;
}

std::optional<Charsmap::Match> Charsmap::longest(std::string_view text) const {
  std::optional<Match> out;
  walk(text, [&](std::size_t length, std::uint32_t offset) {
    if (const auto match = match_at(length, offset)) out = match;
    return true;
  });
  return out;
}

std::string Charsmap::replace_longest(std::string_view text) const {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    if (const auto match = longest(text.substr(pos))) {
      out += match->replacement;
      pos += match->length;
    } else {
      const std::size_t character = decode_utf8(text, pos).length;
      out += text.substr(pos, character);
      pos += character;
    }
  }
  return out;
}

std::string Charsmap::replace_graphemes(std::string_view text) const {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const std::string_view cluster = text.substr(pos, grapheme_length(text, pos));
    pos += cluster.size();
    if (cluster.size() < kLongCluster) {
      if (const auto match = shortest(cluster)) {
        out += match->replacement;
        continue;
      }
    }
    for (std::size_t at = 0; at < cluster.size();) {
      const std::string_view character = cluster.substr(at, decode_utf8(cluster, at).length);
      const auto match = shortest(character);
      out += match ? match->replacement : character;
      at += character.size();
    }
  }
  return out;
}

}  // namespace tessera
