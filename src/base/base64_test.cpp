// Catches: bytes that change in a round trip, wrong padding, and damaged text that is accepted.
#include "tessera/base/base64.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Base64, MatchesTheExamplesOfRfc4648) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64, AllBytesSurviveARoundTrip) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes += static_cast<char>(i * 7);
  for (std::size_t n = 0; n < bytes.size(); n += 37)
    EXPECT_EQ(from_base64(to_base64(bytes.substr(0, n))), bytes.substr(0, n)) << n;
}

TEST(Base64, DamagedTextIsRefused) {
  for (const char* text : {"Z", "Zg=", "Zg=a", "====", "Zm9v!A==", "Zh==", "Zg==Zm9v", "Zm 9"})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tessera
