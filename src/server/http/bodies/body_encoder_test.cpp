// Catches: compressed answers that do not decode to the body, and encodings that a client does not accept.
#include "tessera/server/http/bodies/body_encoder.h"

#include <gtest/gtest.h>

#include "tessera/server/http/bodies/content_coding.h"

namespace tessera {
namespace {

TEST(BodyEncoder, PartsGiveTheBodyBack) {
  std::string body;
  for (int i = 0; body.size() < 300'000; ++i) body += std::to_string(i * 7919) + (i % 100 == 0 ? "\n" : " ");
  for (const char* coding : {"zstd", "gzip"}) {
    for (const std::size_t part : {body.size(), std::size_t{100'000}, std::size_t{999}}) {
      BodyEncoder encoder(coding);
      std::string encoded;
      for (std::size_t at = 0; at < body.size(); at += part)
        encoded += encoder.encode(std::string_view(body).substr(at, part), at + part >= body.size());
      EXPECT_LT(encoded.size(), body.size() * 3 / 4);
      MemoryCharge memory;
      ApiResult<std::string> decoded = decode_body(encoded, coding, body.size(), memory);
      ASSERT_TRUE(decoded.ok()) << coding << " " << part << ": " << decoded.error().message;
      EXPECT_EQ(*decoded, body);
    }
  }
}

TEST(BodyEncoder, AnEmptyLastPartEndsTheBody) {
  for (const char* coding : {"zstd", "gzip"}) {
    BodyEncoder encoder(coding);
    std::string encoded = encoder.encode("hello", false);
    encoded += encoder.encode("", true);
    MemoryCharge memory;
    EXPECT_EQ(*decode_body(encoded, coding, 100, memory), "hello");
  }
}

TEST(BodyEncoder, TheClientsFavouriteIsChosen) {
  EXPECT_EQ(choose_coding("gzip, deflate, br, zstd"), "zstd");
  EXPECT_EQ(choose_coding("gzip, deflate"), "gzip");
  EXPECT_EQ(choose_coding("GZIP"), "gzip");
  EXPECT_EQ(choose_coding("zstd;q=0.5, gzip;q=0.8"), "gzip");
  EXPECT_EQ(choose_coding("gzip;q=1.0, zstd; q=1"), "zstd");
  EXPECT_EQ(choose_coding("*"), "zstd");
  EXPECT_EQ(choose_coding("*, zstd;q=0"), "gzip");
  EXPECT_EQ(choose_coding("br;q=1.0, gzip;q=0"), "");
  EXPECT_EQ(choose_coding("identity"), "");
  EXPECT_EQ(choose_coding("gzip;q=x, zstd;q=2"), "");
  EXPECT_EQ(choose_coding(""), "");
  EXPECT_EQ(choose_coding(",;,q=1"), "");
}

}  // namespace
}  // namespace tessera
