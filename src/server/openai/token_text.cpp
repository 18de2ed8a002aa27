#include "tessera/server/openai/token_text.h"

#include <charconv>

#include "tessera/text/byte_alphabet.h"

namespace tessera {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // ▁

}  // namespace

std::string token_text(const Tokenizer* tokenizer, TokenId id) {
  if (tokenizer == nullptr) return "";
  std::string text = tokenizer->decode({&id, 1}, /*skip_special=*/false);
  const std::string_view token = tokenizer->id_to_token(id).value_or("");
  if (token.starts_with(kSpaceSymbol) && !text.starts_with(' ')) text.insert(0, " ");
  return text;
}

std::string shown_token(const Tokenizer* tokenizer, TokenId id, bool as_id) {
  return as_id ? "token_id:" + std::to_string(id.value()) : token_text(tokenizer, id);
}

std::string token_bytes(const Tokenizer* tokenizer, TokenId id) {
  std::string text = token_text(tokenizer, id);
  if (text.find(kReplacement) == std::string::npos) return text;
  const std::string_view token = tokenizer->id_to_token(id).value_or("");
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with(">")) {
    unsigned char byte = 0;
    const char* end = token.data() + 5;
    if (std::from_chars(token.data() + 3, end, byte, 16).ptr == end) return {static_cast<char>(byte)};
  }
  std::string bytes;
  append_bytes(bytes, token);
  return bytes;
}

}  // namespace tessera
