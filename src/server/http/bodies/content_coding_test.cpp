// Catches: compressed bodies that are decoded wrongly; small bodies that inflate past the limit; and broken bodies that
// pass as complete.
#include "tessera/server/http/bodies/content_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <random>

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kLimit = 1 << 20;

// Decodes without a memory limit.
ApiResult<std::string> decoded(std::string body, std::string_view coding, std::size_t max_bytes) {
  MemoryCharge memory;
  return decode_body(std::move(body), coding, max_bytes, memory);
}

std::string zlib_of(const std::string& text, bool gzip) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, gzip ? MAX_WBITS + 16 : MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string made(deflateBound(&stream, text.size()) + 64, '\0');
  std::string given = text;
  stream.next_in = reinterpret_cast<Bytef*>(given.data());
  stream.avail_in = static_cast<uInt>(given.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  made.resize(made.size() - stream.avail_out);
  deflateEnd(&stream);
  return made;
}
std::string zstd_of(const std::string& text) {
  std::string made(ZSTD_compressBound(text.size()), '\0');
  made.resize(ZSTD_compress(made.data(), made.size(), text.data(), text.size(), 3));
  return made;
}
std::string coded(const std::string& text, std::string_view coding) {
  return coding == "zstd" ? zstd_of(text) : zlib_of(text, coding == "gzip");
}

std::string some_text(std::size_t bytes) {
  std::mt19937 random(3);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>('a' + random() % 20);
  return text;
}

int status_of(std::string body, std::string_view coding) {
  const ApiResult<std::string> made = decoded(std::move(body), coding, kLimit);
  return made.ok() ? 200 : made.error().http_status;
}

TEST(ContentCoding, InflatesEachCoding) {
  for (const std::string_view coding : {"gzip", "deflate", "zstd"}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{64 * 1024}, kLimit}) {
      const std::string text = some_text(bytes);
      ApiResult<std::string> made = decoded(coded(text, coding), coding, kLimit);
      ASSERT_TRUE(made.ok()) << coding << " " << bytes << ": " << made.error().message;
      EXPECT_TRUE(*made == text) << coding << " " << bytes;
    }
  }
  EXPECT_EQ(*decoded(coded("text", "gzip"), "X-GZIP", kLimit), "text");
  EXPECT_EQ(*decoded("text", "", kLimit), "text");
  EXPECT_EQ(*decoded("text", "Identity", kLimit), "text");
}

TEST(ContentCoding, SeveralMembersAreOneBody) {
  EXPECT_EQ(*decoded(coded("one,", "gzip") + coded("two", "gzip"), "gzip", kLimit), "one,two");
  EXPECT_EQ(*decoded(coded("one,", "zstd") + coded("two", "zstd"), "zstd", kLimit), "one,two");
}

TEST(ContentCoding, LimitsTheInflatedSize) {
  for (const std::string_view coding : {"gzip", "deflate", "zstd"}) {
    const std::string bomb = coded(std::string(64 << 20, 'a'), coding);
    EXPECT_LT(bomb.size(), kLimit) << coding;
    const ApiResult<std::string> made = decoded(bomb, coding, kLimit);
    ASSERT_FALSE(made.ok()) << coding;
    EXPECT_EQ(made.error().http_status, 413);
    EXPECT_THAT(made.error().message, HasSubstr("1048576 bytes"));
  }
}

TEST(ContentCoding, BrokenBodiesAreRefused) {
  const std::string text = some_text(100'000);
  for (const std::string_view coding : {"gzip", "deflate", "zstd"}) {
    const std::string whole = coded(text, coding);
    EXPECT_EQ(status_of("{\"prompt\": 1}", coding), 400) << coding;
    EXPECT_EQ(status_of("", coding), 400) << coding;
    EXPECT_EQ(status_of(whole.substr(0, whole.size() - 5), coding), 400) << coding;
    EXPECT_EQ(status_of(whole.substr(0, 50'000), coding), 400) << coding;
    EXPECT_EQ(status_of(whole + "more", coding), 400) << coding;
  }
  // The frame has a window of 128 MiB, but at most 8 MiB are accepted.
  const std::string wide("\x28\xb5\x2f\xfd\x00\x88\x01\x00\x00", 9);
  EXPECT_EQ(status_of(wide, "zstd"), 400);
}

TEST(ContentCoding, KnowsTheAcceptedCodings) {
  for (const char* known : {"", "identity", "gzip", "GZip", "x-gzip", "deflate", "zstd"})
    EXPECT_TRUE(is_known_coding(known)) << known;
  for (const char* unknown : {"br", "compress", "gzip, gzip", "gzipped"}) EXPECT_FALSE(is_known_coding(unknown));
}

TEST(ContentCoding, ChargesInflatedBytesBeforehand) {
  const std::string text(1'000'000, 'a');
  for (const std::string_view coding : {"gzip", "deflate", "zstd"}) {
    MemoryBudget budget(500'000);
    MemoryCharge charge(&budget);
    const ApiResult<std::string> refused = decode_body(coded(text, coding), coding, 2'000'000, charge);
    ASSERT_FALSE(refused.ok()) << coding;
    EXPECT_EQ(refused.error().http_status, 413) << refused.error().message;
    EXPECT_LE(budget.used(), 500'000);
    MemoryBudget enough(4'000'000);
    MemoryCharge whole(&enough);
    EXPECT_EQ(*decode_body(coded(text, coding), coding, 2'000'000, whole), text);
    EXPECT_GE(enough.used(), 1'000'000) << coding;
  }
}

}  // namespace
}  // namespace tessera
