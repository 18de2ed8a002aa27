// Catches: ill-formed UTF-8 that is read as a character (overlong forms, surrogates, values above U+10FFFF); characters
// that are cut at the end of a buffer; wrong normal forms; and wrong character classes.
#include "tessera/text/unicode.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Unicode, EveryCodePointSurvives) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    append_utf8(text, code);
    const Utf8Step step = decode_utf8(text, 0);
    ASSERT_EQ(step.kind, Utf8Step::Kind::kCharacter) << std::uint32_t{code};
    ASSERT_EQ(step.code, code);
    ASSERT_EQ(step.length, text.size());
    for (std::size_t cut = 1; cut < text.size(); ++cut) {
      ASSERT_EQ(decode_utf8(text.substr(0, cut), 0).kind, Utf8Step::Kind::kIncomplete) << std::uint32_t{code};
      ASSERT_EQ(complete_utf8_prefix("ab" + text.substr(0, cut)), 2u);
    }
  }
}

TEST(Unicode, IllFormedPartsAreReplacedOneByOne) {
  // The counts follow the Unicode standard's "maximal subpart" practice.
  EXPECT_EQ(replace_invalid_utf8("a\x80z"), "a\uFFFDz");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\x98!"), "\uFFFD!");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xE4\xBD"), "\uFFFD");
  EXPECT_EQ(find_invalid_utf8("ok é世😀"), std::string_view::npos);
  EXPECT_EQ(find_invalid_utf8("ok \xFF"), 3u);
  for (std::size_t at = 0; at < 24; ++at) {  // ASCII is checked eight characters at a time
    std::string text(24, 'a');
    text[at] = '\xFF';
    EXPECT_EQ(find_invalid_utf8(text), at);
  }
}

TEST(Unicode, CompletePrefixKeepsIllFormedBytes) {
  EXPECT_EQ(complete_utf8_prefix(""), 0u);
  EXPECT_EQ(complete_utf8_prefix("abc"), 3u);
  EXPECT_EQ(complete_utf8_prefix("a\xF0\x9F\x98"), 1u);
  EXPECT_EQ(complete_utf8_prefix("a\x80\x80\x80"), 4u);
  EXPECT_EQ(complete_utf8_prefix("a\xFF"), 2u);
  EXPECT_EQ(complete_utf8_prefix("\xE4\xBD\xA0"), 3u);
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(*normalize("e\u0301 ﬁ", NormalForm::kNfc), "é ﬁ");
  EXPECT_EQ(*normalize("é", NormalForm::kNfd), "e\u0301");
  EXPECT_EQ(*normalize("ﬁ ½ é", NormalForm::kNfkc), "fi 1⁄2 é");
  EXPECT_EQ(*normalize("ﬁé", NormalForm::kNfkd), "fie\u0301");
  EXPECT_EQ(*normalize(std::string_view("a\0b", 3), NormalForm::kNfc), std::string("a\0b", 3));
}

TEST(Unicode, CharacterClasses) {
  EXPECT_TRUE(is_whitespace(0x3000) && is_whitespace(0x85) && !is_whitespace(0x180E) && !is_whitespace(0x200B));
  EXPECT_TRUE(is_number(U'½') && is_number(U'٣') && !is_number(U'a'));
  EXPECT_TRUE(is_word(U'_') && is_word(U'é') && is_word(0x301) && !is_word(U'½') && !is_word(U'-'));
  EXPECT_TRUE(is_punctuation(U'$') && is_punctuation(U'。') && !is_punctuation(U'€'));
  EXPECT_TRUE(is_lower(U'ß') && is_upper(U'É') && !is_upper(U'世') && !is_lower(U'世'));
  EXPECT_EQ(count_characters("é世😀"), 3u);
}

}  // namespace
}  // namespace tessera
