// Tests a scanner that follows a JSON object byte by byte. Catches: text that is accepted although it is not a JSON
// object; an object that is refused; and a byte of a key, of a value, or of neither that is reported as another of
// these parts.
#include "tessera/server/fields/json_scanner.h"

#include <gtest/gtest.h>

#include <random>

#include "tessera/base/json.h"

namespace tessera {
namespace {

// Returns one letter per byte: k(ey), v(alue), - (between), ! (an error) or ? (a byte after the end). The first ! or ?
// ends the result.
std::string parts(std::string_view text) {
  JsonScanner scanner;
  std::string out;
  for (const char c : text) {
    if (scanner.done()) return out + "?";
    switch (scanner.push(c)) {
      case JsonScanner::Part::kError: return out + "!";
      case JsonScanner::Part::kBetween: out += '-'; break;
      case JsonScanner::Part::kKey: out += 'k'; break;
      case JsonScanner::Part::kValue: out += 'v'; break;
    }
  }
  return out + (scanner.done() ? "." : "");
}

TEST(JsonScanner, TellsTheMemberOfEachByte) {
  EXPECT_EQ(parts("{}"), "--.");
  EXPECT_EQ(parts(R"({"a": 1, "b":true})"), "-kkk--v--kkk-vvvv-.");
  EXPECT_EQ(parts(R"({"a" : {"b": [1, "}"]} })"), "-kkk---vvvvvvvvvvvvvvv--.");
  EXPECT_EQ(parts(R"({"\"":"\"" , "a":-1.5e+3})"), "-kkkk-vvvv---kkk-vvvvvvv-.");
  EXPECT_EQ(parts(R"( {})"), "!");
  EXPECT_EQ(parts(R"({"a":01})"), "-kkk-v!");
  EXPECT_EQ(parts(R"({"a":1,})"), "-kkk-v-!");
  EXPECT_EQ(parts(R"({"a":[}})"), "-kkk-v!");
  EXPECT_EQ(parts("{\"a\nb\":1}"), "-kk!");
}

bool accepts(std::string_view text) {
  JsonScanner scanner;
  for (const char c : text) {
    if (scanner.done() || scanner.push(c) == JsonScanner::Part::kError) return false;
  }
  return scanner.done();
}

TEST(JsonScanner, AgreesWithTheParserOnMutatedObjects) {
  const std::string seed =
      R"({"a":[1,-0.5,2e3,4E-5,{}],"b":{"c":null,"d":[true,false,[]]},"e":"x\n\u00e9\"\\/","f":"","g":0})";
  constexpr std::string_view kBytes = "{}[]\",:\\ \n-+.0123456789eEutfn/bx";
  std::mt19937 random(4);
  int good = 0;
  for (int round = 0; round < 100'000; ++round) {
    std::string text = seed;
    for (auto i = random() % 3 + 1; i > 0; --i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = kBytes[random() % kBytes.size()]; break;
        case 1: text.erase(at, 1 + random() % 3); break;
        default: text.insert(at, 1, kBytes[random() % kBytes.size()]);
      }
    }
    const auto parsed = Json::parse(text, "t");
    // The parser is stricter than the scanner: it also refuses some objects that are valid JSON, such as one that has a
    // key twice.
    const std::string& why = parsed.status().message();
    if (!parsed.ok() && (why.find("twice") != std::string::npos || why.find("overflow") != std::string::npos ||
                         why.find("surrogate") != std::string::npos || why.find("duplicate") != std::string::npos)) {
      continue;
    }
    const bool object = parsed.ok() && parsed->is_object() && text.front() == '{' && text.back() == '}';
    ASSERT_EQ(accepts(text), object) << text << "\n" << why;
    good += object ? 1 : 0;
  }
  EXPECT_GT(good, 5000);
}

TEST(JsonScanner, DeepNestingIsAnError) {
  std::string text = R"({"a":)";
  for (int i = 0; i < kMaxJsonDepth; ++i) text += '[';
  EXPECT_FALSE(accepts(text));
  EXPECT_EQ(parts(text).back(), '!');
}

}  // namespace
}  // namespace tessera
