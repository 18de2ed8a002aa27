// Catches: symbolic arithmetic that differs from arithmetic on numbers; a division that is accepted although it leaves
// a remainder; overflow; text that parses as another dimension; and shapes that are wrongly accepted or rejected for a
// reshape.
#include "tessera/ir/type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tessera::ir {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGreatest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();

class Random {
 public:
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  Bucket bucket() {
    Bucket b;
    for (std::int64_t& size : b.sizes) size = between(0, 100);
    return b;
  }
  Symbol symbol() { return static_cast<Symbol>(between(0, kNumSymbols - 1)); }
  Dim dim() {
    Dim d = between(0, 50);
    for (std::int64_t i = between(0, 3); i > 0; --i) d = d + Dim(symbol()) * between(-2, 9);
    return d;
  }

 private:
  std::mt19937_64 random_{7};
};

// Computes sums, multiples and quotients of two dimensions, and compares their values with the same computations on the
// two dimensions' values. Skips dimensions that cannot be evaluated.
TEST(Dim, ArithmeticAgreesWithNumbers) {
  Random random;
  int compared = 0;
  for (int i = 0; i < 5000; ++i) {
    const Bucket bucket = random.bucket();
    const Dim a = random.dim();
    const Dim b = random.dim();
    const std::int64_t k = random.between(1, 12);
    const Result<std::int64_t> x = a.evaluate(bucket);
    const Result<std::int64_t> y = b.evaluate(bucket);
    if (!x.ok() || !y.ok()) continue;
    ++compared;
    EXPECT_EQ(*((a + b) * k).evaluate(bucket), (*x + *y) * k);
    EXPECT_EQ(*(a * k + b * k).evaluate(bucket), (*x + *y) * k);
    EXPECT_EQ((a + b) * k, a * k + b * k);
    EXPECT_EQ(a + b, b + a);
    EXPECT_EQ((a * k).divided_by(k), a);
    const Dim quotient = (a + b).divided_by(k);
    if ((*x + *y) % k == 0) {
      EXPECT_EQ(*quotient.evaluate(bucket), (*x + *y) / k);
    } else {
      EXPECT_THAT(quotient.evaluate(bucket).status().message(), HasSubstr("leaves a remainder"));
    }
  }
  EXPECT_GT(compared, 3000);
}

TEST(Dim, FractionsAddExactly) {
  const Dim third = Dim(Symbol::kTokens).divided_by(3);
  EXPECT_EQ(third + third + third, Dim(Symbol::kTokens));
  EXPECT_EQ(third * 6, Dim(Symbol::kTokens) * 2);
  EXPECT_EQ(Dim(Symbol::kTokens).divided_by(2).divided_by(3), Dim(Symbol::kTokens).divided_by(6));
}

TEST(Dim, ReadsItsOwnText) {
  Random random;
  for (int i = 0; i < 5000; ++i) {
    const Dim dim = random.dim().divided_by(random.between(1, 12));
    const Result<Dim> back = Dim::parse(dim.to_string());
    ASSERT_TRUE(back.ok()) << back.status().message();
    EXPECT_EQ(*back, dim) << dim.to_string();
  }
  for (const Dim& dim : {Dim(kGreatest), Dim(kLowest), Dim(Symbol::kPages) * kLowest}) {
    EXPECT_EQ(*Dim::parse(dim.to_string()), dim) << dim.to_string();
  }
}

TEST(Dim, TextIsInLowestTermsAndReadable) {
  const Dim tokens = Symbol::kTokens;
  const Dim requests = Symbol::kRequests;
  EXPECT_EQ(Dim(64).to_string(), "64");
  EXPECT_EQ(Dim(0).to_string(), "0");
  EXPECT_EQ(tokens.to_string(), "T");
  EXPECT_EQ((tokens * 2).to_string(), "2*T");
  EXPECT_EQ((tokens * 2 + requests + 8).to_string(), "2*T + B + 8");
  EXPECT_EQ((tokens * 2 + 8).divided_by(3).to_string(), "(2*T + 8)/3");
  EXPECT_EQ((tokens * 2 + 8).divided_by(4).to_string(), "(T + 4)/2");
  EXPECT_EQ(tokens.divided_by(4).to_string(), "T/4");
  EXPECT_EQ((tokens * -1 + -3).to_string(), "-T - 3");
  EXPECT_EQ((Dim(page_symbol(0)) + Dim(page_symbol(3)) * 2).to_string(), "P + 2*P3");
}

TEST(Dim, OtherSpellingsReadAsTheSame) {
  EXPECT_EQ(*Dim::parse("(2*T+8) / 4"), *Dim::parse("(T + 4)/2"));
  EXPECT_EQ(*Dim::parse("4 + T + T - 2"), *Dim::parse("2*T + 2"));
  EXPECT_EQ(*Dim::parse(" 8/4 "), Dim(2));
  EXPECT_EQ(*Dim::parse("(T)"), Dim(Symbol::kTokens));
}

TEST(Dim, RefusesOtherText) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "found the end, expected a number or one of the symbols"},
      {"X", "character 1: found 'X'"},
      {"P4", "found 'P', expected a number or one of the symbols T, B, Q, R, S, P, P1, P2, P3"},
      {"P11", "found 'P'"},
      {"T T", "character 3: found 'T', expected its end"},
      {"2*", "found the end"},
      {"2*3", "found '3', expected a number or one of the symbols"},
      {"T + 8/4", "parentheses around a sum"},
      {"(T + 8/4", "expected ')'"},
      {"T/0", "a divisor above 0"},
      {"T/-2", "found '-', expected a number"},
      {"9223372036854775808", "a number below 2^63"},
      {"9223372036854775807*T + 9223372036854775807*T", "numbers below 2^63"},
      {"((T))", "found '('"},
      {"--T", "found '-'"},
  };
  for (const auto& [text, message] : kCases) {
    const Result<Dim> dim = Dim::parse(text);
    ASSERT_FALSE(dim.ok()) << text;
    EXPECT_THAT(dim.status().message(), HasSubstr(message)) << text;
  }
  EXPECT_FALSE(Dim::parse(std::string(1000000, '(')).ok());
  EXPECT_FALSE(Dim::parse(std::string_view("T\0", 2)).ok());
}

TEST(Dim, OverflowIsAnErrorAndNeverANumber) {
  Bucket bucket;
  bucket[Symbol::kTokens] = 4;
  const Dim large = Dim(Symbol::kTokens) * (kGreatest / 2);
  EXPECT_THAT(large.evaluate(bucket).status().message(), HasSubstr("too large"));
  const Dim lost = large * 4;
  EXPECT_FALSE(lost.representable());
  EXPECT_FALSE((lost + 1).representable());
  EXPECT_FALSE((Dim(1) + lost).divided_by(4).representable());
  EXPECT_FALSE(lost.constant().has_value());
  EXPECT_THAT(lost.evaluate(bucket).status().message(), HasSubstr("exceed 64 bits"));
  EXPECT_FALSE(Dim::parse(lost.to_string()).ok());

  Bucket huge;
  huge.sizes.fill(kGreatest);
  Dim sum = 0;
  for (int s = 0; s < kNumSymbols; ++s) sum = sum + Dim(static_cast<Symbol>(s)) * kGreatest;
  EXPECT_FALSE(sum.evaluate(huge).ok());
}

TEST(Dim, NegativeSizesAreRefused) {
  Bucket bucket;
  bucket[Symbol::kTokens] = 3;
  EXPECT_EQ(*(Dim(Symbol::kTokens) + -3).evaluate(bucket), 0);
  EXPECT_THAT((Dim(Symbol::kTokens) + -4).evaluate(bucket).status().message(),
              HasSubstr("T - 4 with T=3: it is negative"));
}

TEST(Dim, ConstantOnlyWithoutSymbolAndRemainder) {
  EXPECT_EQ(Dim(64).constant(), 64);
  EXPECT_EQ(Dim(64).divided_by(4).constant(), 16);
  EXPECT_EQ(Dim(7).divided_by(2).constant(), std::nullopt);
  EXPECT_EQ(Dim(Symbol::kTokens).constant(), std::nullopt);
  EXPECT_EQ((Dim(Symbol::kTokens) * 0).constant(), 0);
}

TEST(Type, TextOfTypesAndBuckets) {
  EXPECT_EQ((Type{DType::kBFloat16, {Symbol::kTokens, 1024}}).to_string(), "bf16[T, 1024]");
  EXPECT_EQ(Type{}.to_string(), "f32[]");
  Bucket bucket;
  EXPECT_EQ(bucket.to_string(), "no sizes");
  bucket[Symbol::kRequests] = 1;
  bucket[Symbol::kTokens] = 16;
  EXPECT_EQ(bucket.to_string(), "T=16 B=1");
}

TEST(Type, EveryDTypeHasItsNameAndSize) {
  const std::pair<const char*, std::size_t> kSizes[] = {{"f32", 4}, {"f16", 2}, {"bf16", 2},
                                                        {"i32", 4}, {"i64", 8}, {"u8", 1}};
  for (const auto& [name, size] : kSizes) {
    const std::optional<DType> dtype = parse_dtype(name);
    ASSERT_TRUE(dtype.has_value()) << name;
    EXPECT_EQ(dtype_name(*dtype), name);
    EXPECT_EQ(dtype_size(*dtype), size);
    EXPECT_EQ(is_floating_point(*dtype), std::string_view(name).find('f') != std::string_view::npos);
  }
  EXPECT_EQ(parse_dtype("f64"), std::nullopt);
  for (int s = 0; s < kNumSymbols; ++s) {
    EXPECT_EQ(parse_symbol(symbol_name(static_cast<Symbol>(s))), static_cast<Symbol>(s));
  }
}

TEST(Type, BytesAndTheirLimits) {
  Bucket bucket;
  bucket[Symbol::kTokens] = 3;
  EXPECT_EQ(*size_bytes({DType::kBFloat16, {Symbol::kTokens, 10}}, bucket), 60);
  EXPECT_EQ(*size_bytes({DType::kInt64, {}}, bucket), 8);
  const std::int64_t big = std::int64_t{1} << 31;
  EXPECT_EQ(*size_bytes({DType::kUInt8, {big, big}}, bucket), std::int64_t{1} << 62);
  EXPECT_FALSE(size_bytes({DType::kFloat32, {big, big}}, bucket).ok());
  EXPECT_FALSE(evaluate({big, big, 2}, bucket).ok());
  EXPECT_EQ(*size_bytes({DType::kFloat32, {big, big, big, 0}}, bucket), 0);
  EXPECT_FALSE(size_bytes({DType::kFloat32, {Dim(Symbol::kTokens).divided_by(2)}}, bucket).ok());
}

TEST(SameElementCount, ComparesProductsOfDimensions) {
  const Dim tokens = Symbol::kTokens;
  const Dim requests = Symbol::kRequests;
  EXPECT_TRUE(same_element_count({tokens, 1024}, {tokens, 16, 64}));
  EXPECT_TRUE(same_element_count({tokens * 2, 64}, {128, tokens}));
  EXPECT_TRUE(same_element_count({(tokens + 4).divided_by(2), 6}, {tokens + 4, 3}));
  EXPECT_TRUE(same_element_count({tokens, requests}, {requests, tokens}));
  EXPECT_TRUE(same_element_count({}, {1, 1}));
  EXPECT_TRUE(same_element_count({tokens, 0}, {0}));
  EXPECT_TRUE(same_element_count({tokens + -4, 2}, {2, tokens + -4}));
  EXPECT_FALSE(same_element_count({tokens, 4}, {requests, 4}));
  EXPECT_FALSE(same_element_count({tokens, 4}, {tokens, 8}));
  EXPECT_FALSE(same_element_count({tokens, tokens}, {tokens}));
  EXPECT_FALSE(same_element_count({tokens + 1}, {tokens}));
  EXPECT_FALSE(same_element_count({tokens}, {tokens * -1}));
  EXPECT_FALSE(same_element_count({tokens, 0}, {tokens}));
  EXPECT_FALSE(same_element_count({kGreatest, kGreatest, kGreatest}, {kGreatest, kGreatest, kGreatest}));
}

}  // namespace
}  // namespace tessera::ir
