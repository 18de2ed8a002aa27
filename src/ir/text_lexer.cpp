#include "tessera/ir/text_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tessera::ir {
namespace {

constexpr std::string_view kPunctuation = "(){}[],:=";
constexpr std::string_view kDimensionCharacters = "0123456789TBQRSP+-*/() \t";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte >= 0x7f ? fmt::format("byte 0x{:02x}", byte) : fmt::format("'{}'", c);
}

}  // namespace

bool is_name_char(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.'; }

bool is_word(std::string_view text) {
  return !text.empty() && (is_letter(text[0]) || text[0] == '_') && std::all_of(text.begin(), text.end(), is_name_char);
}

bool is_keyword(std::string_view text) {
  constexpr std::array<std::string_view, 5> kKeywords = {"group", "input", "weight", "state", "return"};
  return std::find(kKeywords.begin(), kKeywords.end(), text) != kKeywords.end();
}

std::string shown(const Token& token) {
  constexpr std::size_t kMost = 60;
  const std::string_view more = token.text.size() > kMost ? "…" : "";
  std::string text;
  for (const char c : token.text.substr(0, kMost)) text += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  switch (token.kind) {
    case Token::Kind::kString: return fmt::format("the string \"{}{}\"", text, more);
    case Token::Kind::kValue: return fmt::format("%{}{}", text, more);
    case Token::Kind::kGraphName: return fmt::format("@{}{}", text, more);
    case Token::Kind::kEnd: return "the end of the text";
    default: return fmt::format("'{}{}'", text, more);
  }
}

Status Lexer::error_at(std::size_t offset, std::string_view message) const {
  const std::string_view before = text_.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t line_start = before.rfind('\n') == std::string_view::npos ? 0 : before.rfind('\n') + 1;
  return invalid_argument(fmt::format("line {}, column {}: {}", line, offset - line_start + 1, message));
}

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      return;
    }
  }
}

std::string_view Lexer::take_name() {
  const std::size_t start = at_;
  while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

Result<char> Lexer::escaped() {
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  const std::size_t start = at_++;
  switch (c) {
    case '"':
    case '\\': return c;
    case 'n': return '\n';
    case 't': return '\t';
    case 'x': {
      const int high = at_ < text_.size() ? hex_digit(text_[at_]) : -1;
      const int low = at_ + 1 < text_.size() ? hex_digit(text_[at_ + 1]) : -1;
      if (high < 0 || low < 0) return error_at(start, "expected two lower-case hexadecimal digits after \\x");
      at_ += 2;
      return static_cast<char>(high * 16 + low);
    }
    default: return error_at(start, "unknown escape; \\\" \\\\ \\n \\t and \\xHH are accepted");
  }
}

Result<std::string> Lexer::quoted() {
  const std::size_t start = at_++;
  std::string out;
  while (at_ < text_.size() && text_[at_] != '\n') {
    const char c = text_[at_++];
    if (c == '"') return out;
    if (c == '\\') {
      out += TRY(escaped());
    } else {
      out += c;
    }
  }
  return error_at(start, "this string has no end on its line");
}

Result<Token> Lexer::next() {
  skip_space();
  Token token{.kind = Token::Kind::kEnd, .text = {}, .offset = at_};
  if (at_ == text_.size()) return token;

  const char c = text_[at_];
  const char following = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
  if (c == '"') {
    token.kind = Token::Kind::kString;
    token.text = TRY(quoted());
  } else if (c == '%' || c == '@') {
    token.kind = c == '%' ? Token::Kind::kValue : Token::Kind::kGraphName;
    ++at_;
    if (following == '"') {
      token.text = TRY(quoted());
    } else if (is_name_char(following)) {
      token.text = take_name();
    } else {
      return error_at(token.offset, fmt::format("expected a name after '{}', bare or in quotes", c));
    }
  } else if (is_letter(c) || c == '_') {
    token.kind = Token::Kind::kWord;
    token.text = take_name();
  } else if (is_digit(c) || c == '-') {
    token.kind = Token::Kind::kNumber;
    do {
      token.text += text_[at_++];
      // A sign after 'e' or 'E' belongs to the number, as the sign of its exponent.
    } while (at_ < text_.size() &&
             (is_name_char(text_[at_]) ||
              ((text_[at_] == '-' || text_[at_] == '+') && (token.text.back() == 'e' || token.text.back() == 'E'))));
  } else if (kPunctuation.find(c) != std::string_view::npos) {
    token.kind = Token::Kind::kPunctuation;
    token.text = text_[at_++];
  } else {
    return error_at(token.offset, fmt::format("found {}, which begins nothing", shown(c)));
  }
  return token;
}

Result<Token> Lexer::dimension() {
  skip_space();
  Token token{.kind = Token::Kind::kNumber, .text = {}, .offset = at_};
  while (at_ < text_.size() && kDimensionCharacters.find(text_[at_]) != std::string_view::npos) {
    token.text += text_[at_++];
  }
  token.text.erase(token.text.find_last_not_of(" \t") + 1);
  return token;
}

}  // namespace tessera::ir
