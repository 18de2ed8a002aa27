#include "tessera/text/jinja/lexer.h"

#include <algorithm>

#include "tessera/text/jinja/literals.h"
#include "tessera/text/jinja/python_string.h"
#include "tessera/text/unicode.h"

namespace tessera::jinja {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text) {}

  Result<std::vector<Token>> run() {
    while (pos_ < text_.size()) {
      const std::size_t tag = find_tag(pos_);
      if (tag == std::string_view::npos) {
        add_text(text_.substr(pos_), pos_);
        pos_ = text_.size();
        break;
      }
      const char kind = text_[tag + 1];
      const char sign = sign_at(tag + 2);
      const std::string_view data = strip_before(text_.substr(pos_, tag - pos_), sign, kind != '{');
      add_text(data, pos_);
      pos_ = tag + 2 + (sign == 0 ? 0 : 1);
      if (kind == '#') {
        TRY(comment(tag));
      } else if (kind == '%' && at_raw()) {
        TRY(raw(tag));
      } else {
        out_.push_back({kind == '{' ? Token::Kind::kPrintBegin : Token::Kind::kBlockBegin, "", tag});
        TRY(expression(tag, kind == '{'));
      }
      line_starting_ = pos_ > 0 && text_[pos_ - 1] == '\n';
    }
    out_.push_back({Token::Kind::kEnd, "", text_.size()});
    return std::move(out_);
  }

 private:
  Status fail(std::size_t at, std::string message) const { return source_.syntax_error(at, std::move(message)); }
  bool at(std::string_view what) const { return text_.substr(pos_, what.size()) == what; }

  std::size_t find_tag(std::size_t from) const {
    for (std::size_t i = text_.find('{', from); i != std::string_view::npos; i = text_.find('{', i + 1)) {
      if (i + 1 < text_.size() && (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#')) return i;
    }
    return std::string_view::npos;
  }

  char sign_at(std::size_t i) const {
    return i < text_.size() && (text_[i] == '-' || text_[i] == '+') ? text_[i] : '\0';
  }

  void add_text(std::string_view data, std::size_t offset) {
    if (!data.empty()) out_.push_back({Token::Kind::kText, std::string(data), offset});
  }

  // Removes white space from the end of `data`, the text before a tag, by Jinja's rules, and returns the rest. `sign`
  // is the tag's sign. If `block` is true, the tag is a block or a comment, to which lstrip_blocks applies.
  std::string_view strip_before(std::string_view data, char sign, bool block) const {
    if (sign == '-') return trim_end(data);
    if (sign == '+' || !block) return data;
    const std::size_t newline = data.rfind('\n');
    const std::size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (newline == std::string_view::npos && !line_starting_) return data;
    return trim_end(data.substr(line)).empty() ? data.substr(0, line) : data;
  }

  void skip_space() { pos_ += text_.size() - pos_ - trim_start(text_.substr(pos_)).size(); }

  // If the end of a tag (an optional sign, then `end`) comes next, consumes it and returns true. Otherwise returns
  // false. If the sign is "-", also consumes the white space after the tag. If `trims_newline` is true, the sign may be
  // "+", and a tag without a sign also consumes a newline directly after the tag (trim_blocks).
  bool close(std::string_view end, bool trims_newline) {
    const char sign = sign_at(pos_);
    const std::size_t skip = sign == 0 ? 0 : 1;
    if (text_.substr(pos_ + skip, end.size()) != end || (sign == '+' && !trims_newline)) return false;
    pos_ += skip + end.size();
    if (sign == '-') {
      skip_space();
    } else if (sign == 0 && trims_newline && at("\n")) {
      ++pos_;
    }
    return true;
  }

  Status comment(std::size_t tag) {
    for (; pos_ < text_.size(); ++pos_) {
      if (close("#}", true)) return ok_status();
    }
    return fail(tag, "a comment without its end; expected '#}'");
  }

  bool at_raw() const { return block_named("raw", pos_) != std::string_view::npos; }

  // Returns the position of the block's end mark ("%}", "-%}" or "+%}") if `name` and an end mark follow `from`. White
  // space may precede the name and the mark. Returns npos otherwise.
  std::size_t block_named(std::string_view name, std::size_t from) const {
    std::string_view rest = trim_start(text_.substr(from));
    if (!rest.starts_with(name)) return std::string_view::npos;
    rest = trim_start(rest.substr(name.size()));
    const std::string_view end = rest.starts_with('-') || rest.starts_with('+') ? rest.substr(1) : rest;
    return end.starts_with("%}") ? text_.size() - rest.size() : std::string_view::npos;
  }

  Status raw(std::size_t tag) {
    pos_ = block_named("raw", pos_);
    if (at("+")) return fail(pos_, "'+' at the end of a raw tag");
    close("%}", false);
    line_starting_ = pos_ > 0 && text_[pos_ - 1] == '\n';
    const std::size_t begin = pos_;
    for (std::size_t i = text_.find("{%", begin); i != std::string_view::npos; i = text_.find("{%", i + 1)) {
      const char sign = sign_at(i + 2);
      const std::size_t end = block_named("endraw", i + 2 + (sign == 0 ? 0 : 1));
      if (end == std::string_view::npos) continue;
      add_text(strip_before(text_.substr(begin, i - begin), sign, true), begin);
      pos_ = end;
      close("%}", true);
      return ok_status();
    }
    return fail(tag, "'raw' without its end; expected '{% endraw %}'");
  }

  // Reads the inside and the end of a tag.
  Status expression(std::size_t tag, bool print) {
    const std::string_view end = print ? "}}" : "%}";
    std::string open;  // brackets that are still open
    for (;;) {
      skip_space();
      if (pos_ >= text_.size()) return fail(tag, "a tag without its end; expected '" + std::string(end) + "'");
      const std::size_t begin = pos_;
      if (open.empty() && close(end, !print)) {
        out_.push_back({print ? Token::Kind::kPrintEnd : Token::Kind::kBlockEnd, "", begin});
        return ok_status();
      }
      if (is_digit(text_[pos_])) {
        number();
      } else if (text_[pos_] == '"' || text_[pos_] == '\'') {
        TRY(string());
      } else if (!name()) {
        TRY(operation(open));
      }
    }
  }

  // Returns the position after the digits at position `i`. Single "_" may stand between the digits.
  std::size_t digits(std::size_t i) const {
    while (i < text_.size() &&
           (is_digit(text_[i]) || (text_[i] == '_' && i + 1 < text_.size() && is_digit(text_[i + 1])))) {
      ++i;
    }
    return i;
  }

  void number() {
    const std::size_t begin = pos_;
    std::size_t i = digits(begin);
    bool is_float = false;
    // After a dot ("x.0.1"), the digits are an index.
    const bool index = begin > 0 && text_[begin - 1] == '.';
    if (!index && i + 1 < text_.size() && text_[i] == '.' && is_digit(text_[i + 1])) {
      i = digits(i + 1);
      is_float = true;
    }
    if (!index && i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
      std::size_t exponent = i + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit(text_[exponent])) {
        i = digits(exponent);
        is_float = true;
      }
    }
    std::string value(text_.substr(begin, i - begin));
    std::erase(value, '_');
    out_.push_back({is_float ? Token::Kind::kFloat : Token::Kind::kInteger, std::move(value), begin});
    pos_ = i;
  }

  bool name() {
    std::size_t i = pos_;
    while (i < text_.size()) {
      const Utf8Step step = decode_utf8(text_, i);
      if (step.code != '_' && !is_letter(step.code) && (i == pos_ || !is_word(step.code))) break;
      i += step.length;
    }
    if (i == pos_) return false;
    out_.push_back({Token::Kind::kName, std::string(text_.substr(pos_, i - pos_)), pos_});
    pos_ = i;
    return true;
  }

  Status string() {
    const std::size_t begin = pos_;
    const char quote = text_[pos_++];
    while (pos_ < text_.size() && text_[pos_] != quote) pos_ += text_[pos_] == '\\' ? 2 : 1;
    if (pos_ >= text_.size()) return fail(begin, "a string without its closing quote");
    Result<std::string> value = unescape(text_.substr(begin + 1, pos_ - begin - 1));
    if (!value.ok()) return source_.error(begin, value.status());
    out_.push_back({Token::Kind::kString, *std::move(value), begin});
    ++pos_;
    return ok_status();
  }

  Status operation(std::string& open) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators), [&](auto op) { return at(op); });
    if (found == std::end(kOperators)) {
      const std::size_t length = decode_utf8(text_, pos_).length;
      return fail(pos_, "unexpected character '" + std::string(text_.substr(pos_, length)) + "'");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : (c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return fail(pos_, std::string("unexpected '") + c + "'");
      if (open.back() != c) return fail(pos_, std::string("unexpected '") + c + "', expected '" + open.back() + "'");
      open.pop_back();
    }
    out_.push_back({Token::Kind::kOperator, std::string(*found), pos_});
    pos_ += found->size();
    return ok_status();
  }

  const Source& source_;
  std::string_view text_;
  std::size_t pos_ = 0;
  // True at the beginning of the source, and after a tag that also consumed the newline directly after itself.
  bool line_starting_ = true;
  std::vector<Token> out_;
};

}  // namespace

Status Source::error(std::size_t offset, const Status& why) const {
  const std::string_view before = std::string_view(text).substr(0, std::min(offset, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = 1 + count_characters(before.substr(newline == std::string_view::npos ? 0 : newline + 1));
  return why.with_context(name + ": line " + std::to_string(line) + ", column " + std::to_string(column));
}

std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

Result<std::vector<Token>> tokenize(const Source& source) { return Lexer(source).run(); }

}  // namespace tessera::jinja
