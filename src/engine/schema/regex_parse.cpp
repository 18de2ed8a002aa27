#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/engine/schema/regex.h"
#include "tessera/engine/schema/regex_classes.h"
#include "tessera/text/unicode.h"

namespace tessera::schema {
namespace {

constexpr int kMaxDepth = 100;                 // maximum nesting of groups
constexpr std::size_t kMaxRanges = 1'000'000;  // maximum number of character ranges in all classes; \w has hundreds

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Regex> parse() {
    Regex regex = TRY(choice(0));
    if (!at_end()) return bad("a \")\" that closes nothing");
    return regex;
  }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  Status bad(std::string_view what) const {
    return invalid_argument(fmt::format("{} at byte {} of the regular expression", what, at_));
  }
  Status unheld(std::string_view what) const {
    return unimplemented(fmt::format("{} at byte {} of the regular expression is not supported", what, at_));
  }

  Result<Regex> choice(int depth) {
    if (depth > kMaxDepth) return bad(fmt::format("groups nested deeper than {}", kMaxDepth));
    std::vector<Regex> parts;
    do parts.push_back(TRY(sequence(depth)));
    while (take("|"));
    return make_choice(std::move(parts));
  }

  Result<Regex> sequence(int depth) {
    std::vector<Regex> parts;
    while (!at_end() && peek() != '|' && peek() != ')') parts.push_back(TRY(repeated(depth)));
    return make_sequence(std::move(parts));
  }

  Result<Regex> repeated(int depth) {
    Regex regex = TRY(atom(depth));
    while (!at_end()) {
      int min = 0;
      int max = -1;
      if (take("+")) {
        min = 1;
      } else if (take("?")) {
        max = 1;
      } else if (!take("*") && !TRY(counts(min, max))) {
        break;
      }
      if (regex->kind == RegexNode::Kind::kRepeat && last_ == regex.get()) return bad("a repetition of a repetition");
      take("?");  // makes the repetition lazy, which changes no match of a whole text
      if (peek() == '+') return bad("a repetition of a repetition");
      regex = make_repeat(std::move(regex), min, max);
      last_ = regex.get();
    }
    return regex;
  }

  // Reads "{2}", "{2,}" or "{2,3}"; anything else is text.
  Result<bool> counts(int& min, int& max) {
    const std::size_t begin = at_;
    if (!take("{")) return false;
    const std::optional<int> low = TRY(number());
    std::optional<int> high = low;
    if (take(",")) high = TRY(number());
    if (!low && high && peek() == '}') {
      return unimplemented(
          fmt::format("dialects differ on \"{{,{0}}}\" at byte {1} of the regular expression; accepted: \"{{0,{0}}}\"",
                      *high, begin));
    }
    if (!low || !take("}")) {
      at_ = begin;
      return false;
    }
    min = *low;
    max = high.value_or(-1);
    if (max >= 0 && max < min) return bad(fmt::format("a repetition of {} to {} times", min, max));
    return true;
  }

  Result<std::optional<int>> number() {
    std::optional<int> value;
    while (peek() >= '0' && peek() <= '9') {
      value = value.value_or(0) * 10 + (peek() - '0');
      if (*value > kMaxRegexCount) return bad(fmt::format("a repetition of more than {} times", kMaxRegexCount));
      ++at_;
    }
    return value;
  }

  Result<Regex> atom(int depth) {
    using Kind = RegexNode::Kind;
    if (take("^")) return std::make_shared<const RegexNode>(RegexNode{.kind = Kind::kStart});
    if (take("$")) return std::make_shared<const RegexNode>(RegexNode{.kind = Kind::kEnd});
    if (take(".")) return of(any_but_line_ends());
    if (peek() == '(') return group(depth);
    if (peek() == '[') return counted(TRY(bracket()));
    if (peek() == '\\') return counted(TRY(escape(/*in_class=*/false)));
    if (peek() == '*' || peek() == '+' || peek() == '?') return bad("a repetition of nothing");
    if (peek() == '{') {
      int min = 0;
      int max = 0;
      if (TRY(counts(min, max))) return bad("a repetition of nothing");
    }
    return make_class(CharSet::of(next_character()));
  }

  // Counts the ranges, because character classes take most of a pattern's memory.
  Result<Regex> counted(ClassReading reading) {
    ranges_ += reading.narrow.ranges().size() + reading.wide.ranges().size();
    if (ranges_ > kMaxRanges) return bad(fmt::format("classes of more than {} ranges of characters", kMaxRanges));
    return of(std::move(reading));
  }

  static Regex of(ClassReading reading) { return make_class(std::move(reading.narrow), std::move(reading.wide)); }

  Result<Regex> group(int depth) {
    for (const std::string_view look : {"(?=", "(?!", "(?<=", "(?<!"}) {
      if (text_.substr(at_).starts_with(look)) return unheld(fmt::format("a lookaround \"{}\"", look));
    }
    take("(");
    if (take("?") && !take(":")) {
      take("P");
      if (!take("<")) return unheld("a group \"(?\" other than \"(?:\" and \"(?<name>\"");
      const std::size_t end = text_.find('>', at_);
      if (end == std::string_view::npos || end == at_) return bad("a group's name without end");
      at_ = end + 1;
    }
    Regex regex = TRY(choice(depth + 1));
    if (!take(")")) return bad("a \"(\" without \")\"");
    // Forgets the repetition that was made last. "(a*)*" is allowed, because the group lies between the two
    // repetitions.
    last_ = nullptr;
    return regex;
  }

  Result<ClassReading> bracket() {
    take("[");
    const bool negated = take("^");
    if (peek() == ']') {
      return unimplemented(fmt::format(
          "dialects differ on a class that begins with \"]\" at byte {} of the regular expression; accepted: \"\\]\"",
          at_));
    }
    std::vector<CharRange> narrow;
    std::vector<CharRange> wide;
    const auto add = [&](const ClassReading& part) {
      narrow.insert(narrow.end(), part.narrow.ranges().begin(), part.narrow.ranges().end());
      wide.insert(wide.end(), part.wide.ranges().begin(), part.wide.ranges().end());
    };
    while (peek() != ']') {
      if (at_end()) return bad("a \"[\" without \"]\"");
      if (narrow.size() + wide.size() > kMaxRanges) {
        return bad(fmt::format("a class of more than {} ranges of characters", kMaxRanges));
      }
      const ClassReading first = TRY(member());
      const bool range = peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size();
      if (!range) {
        add(first);
        continue;
      }
      take("-");
      const ClassReading last = TRY(member());
      if (first.wide.size() != 1 || last.wide.size() != 1) return bad("a range whose end is no character");
      const CharRange codes = {first.wide.ranges().front().first, last.wide.ranges().front().first};
      if (codes.first > codes.last) return bad("a range that ends before it begins");
      add(same_reading(CharSet({codes})));
    }
    take("]");
    const ClassReading out{CharSet(std::move(narrow)), CharSet(std::move(wide))};
    return negated ? out.complement() : out;
  }

  Result<ClassReading> member() {
    if (peek() == '\\') return escape(/*in_class=*/true);
    return same_reading(CharSet::of(next_character()));
  }

  Result<ClassReading> escape(bool in_class) {
    take("\\");
    if (at_end()) return bad("a \"\\\" at the end");
    const char c = peek();
    const auto single = [&](char32_t code) { return same_reading(CharSet::of(code)); };
    if (std::string_view("dDsSwW").find(c) != std::string_view::npos) {
      ++at_;
      return escape_class(c);
    }
    if (const std::size_t known = std::string_view("tnvfr").find(c); known != std::string_view::npos) {
      ++at_;
      return single(static_cast<unsigned char>("\t\n\v\f\r"[known]));
    }
    if (c == 'b' && in_class) {
      ++at_;
      return single('\b');
    }
    if (c == 'b' || c == 'B') return unheld(fmt::format("a word boundary \"\\{}\"", c));
    if (c == 'p' || c == 'P') return property();
    if (c == 'k') return unheld("a backreference \"\\k\"");
    if (c == 'x') return hexadecimal(2);
    if (c == 'u') return unicode();
    if (c == '0' && !(peek(1) >= '0' && peek(1) <= '9')) {
      ++at_;
      return single(0);
    }
    if (c >= '0' && c <= '9') return unheld(fmt::format("a backreference \"\\{}\"", c));
    if (c == 'c' && ((peek(1) >= 'a' && peek(1) <= 'z') || (peek(1) >= 'A' && peek(1) <= 'Z'))) {
      const auto code = static_cast<char32_t>(peek(1) & 0x1F);
      at_ += 2;
      return single(code);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return bad(fmt::format("an unknown escape \"\\{}\"", c));
    return single(next_character());
  }

  Result<ClassReading> property() {
    const bool negated = peek() == 'P';
    ++at_;
    const std::size_t end = text_.find('}', at_);
    if (!take("{") || end == std::string_view::npos) return bad("a \"\\p\" without \"{name}\"");
    const ClassReading reading = TRY(property_class(text_.substr(at_, end - at_)));
    at_ = end + 1;
    return negated ? reading.complement() : reading;
  }

  Result<ClassReading> hexadecimal(int digits) {
    ++at_;
    const char32_t code = TRY(hex_code(digits));
    return same_reading(CharSet::of(code));
  }

  Result<char32_t> hex_code(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const std::size_t value = std::string_view("0123456789abcdefABCDEF").find(peek());
      if (at_end() || value == std::string_view::npos) return bad(fmt::format("an escape without {} digits", digits));
      code = code * 16 + static_cast<char32_t>(value > 15 ? value - 6 : value);
    }
    return code;
  }

  Result<ClassReading> unicode() {
    ++at_;
    if (take("{")) {
      const std::size_t end = text_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6) return bad("a \"\\u{\" without 1 to 6 digits");
      const char32_t code = TRY(hex_code(static_cast<int>(end - at_)));
      take("}");
      if (code > 0x10FFFF) return bad("a character beyond U+10FFFF");
      return same_reading(CharSet::of(code));
    }
    char32_t code = TRY(hex_code(4));
    if (code >= 0xD800 && code <= 0xDBFF && take("\\u")) {
      const char32_t low = TRY(hex_code(4));
      if (low < 0xDC00 || low > 0xDFFF) return bad("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code <= 0xDFFF) return bad("half a surrogate pair");
    return same_reading(CharSet::of(code));
  }

  // Reads the next character. Precondition: !at_end(). The text is UTF-8; JSON's parser has checked that.
  char32_t next_character() {
    const Utf8Step step = decode_utf8(text_, at_);
    at_ += step.length;
    return step.code;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t ranges_ = 0;
  const RegexNode* last_ = nullptr;  // the repetition that was made last
};

}  // namespace

Result<Regex> parse_regex(std::string_view pattern) { return Parser(pattern).parse(); }

}  // namespace tessera::schema
