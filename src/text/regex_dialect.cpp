#include "tessera/text/regex_dialect.h"

#include <vector>

namespace tessera {
namespace {

// The insides of two character classes "[…]": White_Space, and the word characters of Unicode's regular expression
// report (UTS 18).
constexpr std::string_view kSpace = R"(\p{Z}\x{09}-\x{0d}\x{85})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside a class, Oniguruma's \w also matches these Latin-1 numbers: ² ³ ¹ ¼ ½ ¾.
constexpr std::string_view kWordLatin1 = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

class Translator {
 public:
  explicit Translator(std::string_view regex) : regex_(regex) {}

  Result<std::string> run() {
    out_.reserve(regex_.size() + 32);
    while (pos_ < regex_.size()) {
      const char c = regex_[pos_];
      if (c == '\\') {
        TRY(escape());
      } else if (c == '[') {
        TRY(char_class());
      } else if (c == '{') {
        TRY(interval());
      } else {
        plain(c);
      }
    }
    return std::move(out_);
  }

 private:
  bool at(std::string_view text) const { return regex_.substr(pos_, text.size()) == text; }

  Status refuse(std::string_view what) const {
    return invalid_argument("byte " + std::to_string(pos_) + ": " + std::string(what));
  }

  void plain(char c) {
    ++pos_;
    if (c == '(') {
      groups_.push_back(out_.size());
    } else if (c == ')' && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    } else if (c != '+' && c != '*' && c != '?' && (static_cast<unsigned char>(c) & 0xC0) != 0x80) {
      atom_ = out_.size();
    }
    out_ += c;
  }

  Status escape() {
    if (pos_ + 1 == regex_.size()) return refuse("\\ at the end");
    const char c = regex_[pos_ + 1];
    if (c == 'h' || c == 'H') return refuse("\\h is not supported; accepted: [0-9A-Fa-f]");
    if (c == 'b' || c == 'B') return refuse("word boundaries are not supported");
    if (c == 'W') return refuse("\\W is not supported; accepted: [^\\w]");
    atom_ = out_.size();
    if (c == 's' || c == 'S' || c == 'w') {
      out_ += c == 'S' ? "[^" : "[";
      out_ += c == 'w' ? kWord : kSpace;
      if (c == 'w') out_ += kWordLatin1;
      out_ += ']';
      pos_ += 2;
      return ok_status();
    }
    copy_escape();
    return ok_status();
  }

  // Copies "\n", "\p{L}", "\x{41}" unchanged.
  void copy_escape() {
    const bool braces = pos_ + 2 < regex_.size() && regex_[pos_ + 2] == '{';
    std::size_t end = pos_ + 2;
    if (braces) {
      const std::size_t close = regex_.find('}', pos_);
      end = close == std::string_view::npos ? regex_.size() : close + 1;
    }
    out_ += regex_.substr(pos_, end - pos_);
    pos_ = end;
  }

  Status char_class() {
    atom_ = out_.size();
    out_ += regex_[pos_++];
    if (at("^")) out_ += regex_[pos_++];
    if (at("]")) return refuse("a class that begins with ]; accepted: \\]");
    for (; pos_ < regex_.size();) {
      const char c = regex_[pos_];
      if (at("&&")) return refuse("class intersection && is not supported");
      if (c == '\\') {
        TRY(escape_in_class());
      } else if (at("[:")) {
        const std::size_t close = regex_.find(":]", pos_);
        if (close == std::string_view::npos) return refuse("[: without :]");
        out_ += regex_.substr(pos_, close + 2 - pos_);
        pos_ = close + 2;
      } else if (c == '[') {
        return refuse("a class inside a class is not supported; accepted: \\[ for the character");
      } else {
        out_ += c;
        ++pos_;
        if (c == ']') return ok_status();
      }
    }
    return refuse("a class without ]");
  }

  Status escape_in_class() {
    if (pos_ + 1 == regex_.size()) return refuse("\\ at the end");
    const char c = regex_[pos_ + 1];
    if (c == 'h' || c == 'H' || c == 'W') return refuse("this escape is not supported in a class");
    if (c == 's' || c == 'w') {
      out_ += c == 's' ? kSpace : kWord;
      pos_ += 2;
    } else {
      // Copies any other escape. This includes \S, because PCRE2's \S differs from Oniguruma's only in U+180E.
      copy_escape();
    }
    return ok_status();
  }

  // Reads "{2}", "{1,3}", "{2,}" or a literal brace. Refuses "{,3}".
  Status interval() {
    std::size_t end = pos_ + 1;
    while (end < regex_.size() && ((regex_[end] >= '0' && regex_[end] <= '9') || regex_[end] == ',')) ++end;
    if (end == regex_.size() || regex_[end] != '}' || end == pos_ + 1) {
      plain('{');
      return ok_status();
    }
    if (regex_[pos_ + 1] == ',') return refuse("an interval without its least number; accepted: {0,n}");
    out_ += regex_.substr(pos_, end + 1 - pos_);
    pos_ = end + 1;
    if (at("+")) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
    return ok_status();
  }

  std::string_view regex_;
  std::size_t pos_ = 0;
  std::string out_;
  std::size_t atom_ = 0;  // offset in out_ of the part that a quantifier here would repeat
  std::vector<std::size_t> groups_;
};

}  // namespace

Result<std::string> oniguruma_to_pcre2(std::string_view regex) { return Translator(regex).run(); }

}  // namespace tessera
