#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <limits>
#include <utility>

#include "tessera/ir/type.h"

namespace tessera::ir {
namespace {

using Int128 = __int128;

constexpr Int128 kLowest = std::numeric_limits<std::int64_t>::min();
constexpr Int128 kGreatest = std::numeric_limits<std::int64_t>::max();

Int128 greatest_common_divisor(Int128 a, Int128 b) {
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) a = std::exchange(b, a % b);
  return a;
}

bool fits(Int128 v) { return v >= kLowest && v <= kGreatest; }

Symbol symbol_at(std::size_t i) { return static_cast<Symbol>(i); }

}  // namespace

Dim::Wide Dim::numerators() const {
  Wide wide{};
  wide[0] = constant_;
  std::copy(coefficients_.begin(), coefficients_.end(), wide.begin() + 1);
  return wide;
}

Dim Dim::reduced(Wide numerators, Int128 divisor) {
  Int128 common = divisor;
  for (const Int128 n : numerators) common = greatest_common_divisor(common, n);
  Dim dim;
  dim.divisor_ = 0;
  if (divisor <= 0 || !fits(divisor / common)) return dim;
  for (const Int128 n : numerators) {
    if (!fits(n / common)) return dim;
  }
  dim.divisor_ = static_cast<std::int64_t>(divisor / common);
  dim.constant_ = static_cast<std::int64_t>(numerators[0] / common);
  for (std::size_t i = 0; i < kNumSymbols; ++i) {
    dim.coefficients_[i] = static_cast<std::int64_t>(numerators[i + 1] / common);
  }
  return dim;
}

// In the functions below, a product has two 64-bit factors, and a sum has two such products. All results therefore fit
// into 128 bits.

Dim Dim::operator+(const Dim& other) const {
  if (!representable()) return *this;
  if (!other.representable()) return other;
  Wide sum = numerators();
  const Wide addend = other.numerators();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] * other.divisor_ + addend[i] * divisor_;
  return reduced(sum, Int128{divisor_} * other.divisor_);
}

Dim Dim::operator*(std::int64_t factor) const {
  if (!representable()) return *this;
  Wide product = numerators();
  for (Int128& n : product) n *= factor;
  return reduced(product, divisor_);
}

Dim Dim::divided_by(std::int64_t divisor) const {
  assert(divisor > 0);
  if (!representable()) return *this;
  return reduced(numerators(), Int128{divisor_} * divisor);
}

std::optional<std::int64_t> Dim::constant() const {
  const bool symbolic = std::any_of(coefficients_.begin(), coefficients_.end(), [](std::int64_t c) { return c != 0; });
  if (symbolic || divisor_ != 1) return std::nullopt;
  return constant_;
}

Result<std::int64_t> Dim::evaluate(const Bucket& bucket) const {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument(fmt::format("dimension {} with {}: {}", to_string(), bucket.to_string(), why));
  };
  if (!representable()) return refuse("its numbers exceed 64 bits");
  Int128 sum = constant_;
  for (std::size_t i = 0; i < kNumSymbols; ++i) {
    if (__builtin_add_overflow(sum, Int128{coefficients_[i]} * bucket.sizes[i], &sum)) return refuse("it is too large");
  }
  if (sum % divisor_ != 0) return refuse(fmt::format("the division by {} leaves a remainder", divisor_));
  sum /= divisor_;
  if (sum < 0) return refuse("it is negative");
  if (!fits(sum)) return refuse("it is too large");
  return static_cast<std::int64_t>(sum);
}

std::string Dim::to_string() const {
  if (!representable()) return "unrepresentable";
  std::string text;
  int terms = 0;
  const auto add_term = [&](std::int64_t number, const std::string& symbol) {
    if (number == 0) return;
    const bool negative = number < 0;
    // The number is negated as an unsigned integer, because the magnitude of the lowest int64 does not fit into int64.
    const std::uint64_t magnitude =
        negative ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
    if (terms++ > 0) {
      text += negative ? " - " : " + ";
    } else if (negative) {
      text += "-";
    }
    if (symbol.empty()) {
      text += fmt::format("{}", magnitude);
    } else if (magnitude == 1) {
      text += symbol;
    } else {
      text += fmt::format("{}*{}", magnitude, symbol);
    }
  };
  for (std::size_t i = 0; i < kNumSymbols; ++i) add_term(coefficients_[i], std::string(symbol_name(symbol_at(i))));
  add_term(constant_, "");
  if (terms == 0) text = "0";
  if (divisor_ == 1) return text;
  return terms > 1 ? fmt::format("({})/{}", text, divisor_) : fmt::format("{}/{}", text, divisor_);
}

namespace {

// dim := sum | term "/" number | "(" sum ")" "/" number
// sum := ["-"] term {("+" | "-") term}
// term := number ["*" symbol] | symbol
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  Result<Dim> parse() {
    const bool in_parentheses = accept('(');
    int terms = 0;
    Dim dim = TRY(sum(&terms));
    if (in_parentheses && !accept(')')) return refuse("')'");
    if (accept('/')) {
      if (!in_parentheses && terms > 1) return refuse("parentheses around a sum that is divided, as in (2*T + 8)/4");
      const std::int64_t divisor = TRY(number());
      if (divisor == 0) return refuse("a divisor above 0");
      dim = dim.divided_by(divisor);
    }
    if (peek() != '\0' || at_ < text_.size()) return refuse("its end");
    if (!dim.representable()) return refuse("numbers below 2^63");
    return dim;
  }

 private:
  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  Status refuse(std::string_view expected) const {
    const std::string found = at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end";
    return invalid_argument(
        fmt::format("dimension '{}', character {}: found {}, expected {}", text_, at_ + 1, found, expected));
  }

  Result<Dim> sum(int* terms) {
    Dim dim = 0;
    bool negative = accept('-');
    do {
      const Dim next = TRY(term(negative));
      dim = dim + next;
      ++*terms;
      negative = peek() == '-';
    } while (accept('+') || accept('-'));
    return dim;
  }

  Result<Dim> term(bool negative) {
    const char c = peek();
    Dim dim = negative ? -1 : 1;
    if (c >= '0' && c <= '9') {
      // number() applies the sign itself, so that it accepts the lowest int64, whose magnitude does not fit into int64.
      dim = TRY(number(negative));
      if (!accept('*')) return dim;
      const std::optional<std::int64_t> factor = dim.constant();
      const Symbol s = TRY(symbol());
      return Dim(s) * *factor;
    }
    const Symbol s = TRY(symbol());
    return Dim(s) * (negative ? -1 : 1);
  }

  Result<Symbol> symbol() {
    peek();
    std::size_t end = at_ < text_.size() ? at_ + 1 : at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const std::optional<Symbol> found = parse_symbol(text_.substr(at_, end - at_));
    if (!found) return refuse("a number or one of the symbols T, B, Q, R, S, P, P1, P2, P3");
    at_ = end;
    return *found;
  }

  Result<std::int64_t> number(bool negative = false) {
    const char first = peek();
    if (first < '0' || first > '9') return refuse("a number");
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    const std::string digits = (negative ? "-" : "") + std::string(text_.substr(at_, end - at_));
    std::int64_t value = 0;
    const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc()) return refuse("a number below 2^63");
    at_ = end;
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

Result<Dim> Dim::parse(std::string_view text) {
  constexpr std::size_t kMaxLength = 512;
  if (text.size() > kMaxLength) {
    return invalid_argument(fmt::format("dimension of {} characters; {} are accepted", text.size(), kMaxLength));
  }
  return DimParser(text).parse();
}

// An element count is a product of dimensions, which are affine forms. With rational coefficients, such a product has a
// unique factorisation. Two counts are therefore equal if and only if their numeric factors agree and they have the
// same primitive factors, in any order.
bool same_element_count(const Shape& a, const Shape& b) {
  struct Product {
    Int128 numerator = 1;
    Int128 divisor = 1;
    std::vector<Dim::Wide> primitive;
    bool exact = true;
  };
  const auto multiply = [](const Shape& shape) {
    Product p;
    for (const Dim& dim : shape) {
      Dim::Wide factor = dim.numerators();
      Int128 content = 0;
      for (const Int128 n : factor) content = greatest_common_divisor(content, n);
      p.exact = p.exact && dim.representable() && !__builtin_mul_overflow(p.numerator, content, &p.numerator) &&
                !__builtin_mul_overflow(p.divisor, Int128{dim.divisor_}, &p.divisor);
      if (!p.exact || content == 0) continue;
      const auto leading = std::find_if(factor.begin() + 1, factor.end(), [](Int128 n) { return n != 0; });
      const Int128 sign = (leading != factor.end() ? *leading : factor[0]) < 0 ? -1 : 1;
      p.numerator *= sign;
      for (Int128& n : factor) n /= content * sign;
      if (leading != factor.end()) p.primitive.push_back(factor);
      const Int128 common = greatest_common_divisor(p.numerator, p.divisor);
      p.numerator /= common;
      p.divisor /= common;
    }
    std::sort(p.primitive.begin(), p.primitive.end());
    return p;
  };
  const Product left = multiply(a);
  const Product right = multiply(b);
  if (!left.exact || !right.exact) return false;
  if (left.numerator == 0 || right.numerator == 0) return left.numerator == right.numerator;
  return left.numerator == right.numerator && left.divisor == right.divisor && left.primitive == right.primitive;
}

}  // namespace tessera::ir
