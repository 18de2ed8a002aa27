#include "tessera/text/vocabulary.h"

#include <bit>
#include <functional>

#include "tessera/text/field.h"

namespace tessera {

void Vocabulary::reserve(std::size_t count, std::size_t bytes) {
  bytes_.reserve(bytes);
  tokens_.reserve(count);
  if (2 * count > slots_.size()) grow(std::bit_ceil(2 * count + 16));
}

std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t slot = std::hash<std::string_view>{}(token)&mask;; slot = (slot + 1) & mask) {
    const std::int32_t id = slots_[slot];
    if (id < 0 || view(tokens_[static_cast<std::size_t>(id)]) == token) return slot;
  }
}

void Vocabulary::grow(std::size_t slots) {
  slots_.assign(slots, -1);
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    if (tokens_[id].present) slots_[slot_of(view(tokens_[id]))] = static_cast<std::int32_t>(id);
  }
}

Status Vocabulary::add(std::string_view token, std::int32_t id) {
  if (2 * (count_ + 1) > slots_.size()) grow(std::bit_ceil(4 * count_ + 16));
  const std::size_t slot = slot_of(token);
  if (slots_[slot] == id) return ok_status();
  if (slots_[slot] >= 0) {
    return invalid_argument("token " + quote_for_error(token) + " has id " + std::to_string(id) + " and id " +
                            std::to_string(slots_[slot]) + "; accepted: one id for each token");
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  if (tokens_[index].present) {
    return invalid_argument("id " + std::to_string(id) + " belongs to token " + quote_for_error(view(tokens_[index])) +
                            " and to token " + quote_for_error(token) + "; accepted: one token for each id");
  }
  tokens_[index] = {bytes_.size(), static_cast<std::uint32_t>(token.size()), true};
  bytes_ += token;
  slots_[slot] = id;
  ++count_;
  return ok_status();
}

std::int32_t Vocabulary::find(std::string_view token) const { return slots_.empty() ? -1 : slots_[slot_of(token)]; }

std::optional<std::string_view> Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= size() || !tokens_[static_cast<std::size_t>(id)].present) return std::nullopt;
  return view(tokens_[static_cast<std::size_t>(id)]);
}

std::array<std::int32_t, 256> find_byte_tokens(const Vocabulary& vocabulary) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::array<std::int32_t, 256> out{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
    out[byte] = vocabulary.find(std::string_view(name, sizeof name));
  }
  return out;
}

}  // namespace tessera
