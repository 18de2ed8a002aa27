// Tests the formats to which an engine quantises an unquantised checkpoint when it starts. Catches: such a format that
// differs from the published format of the same name; a matrix that is quantised although its number of columns does
// not fit the format; settings of a quantised checkpoint for which WeightFormats::kind() returns the wrong one of these
// formats.
#include "tessera/model/formats/start_format.h"

#include "tessera/model/formats/formats_test_util.h"

namespace tessera {
namespace {

using test::format_of;
using test::formats_of;
using test::kLinear;

constexpr StartFormat kEveryStart[] = {StartFormat::kFp8, StartFormat::kInt8, StartFormat::kInt4, StartFormat::kNvfp4};

constexpr const char* kFp8Settings = R"({"quant_method": "fp8", "weight_block_size": [128, 128]})";

TEST(StartFormat, HasTheNamesThatAreAccepted) {
  std::string names;
  for (const char* name : {"fp8", "int8", "int4", "nvfp4"}) {
    EXPECT_TRUE(start_format_from_name(name)) << name;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  EXPECT_EQ(names, kStartFormatNames);
  for (const char* name : {"", "awq", "FP8", "fp"}) EXPECT_FALSE(start_format_from_name(name)) << name;
}

TEST(StartFormat, Fp8IsThatOfPublishedBlocks) {
  WeightFormat published = format_of(kFp8Settings);
  published.spelling = WeightFormat::Spelling::kNumbers;
  published.scale = "";
  EXPECT_EQ(format_at_start(StartFormat::kFp8, 96), published);
}

TEST(StartFormat, Int4TakesTheGreatestGroupThatFits) {
  const auto group = [](std::int64_t cols) { return format_at_start(StartFormat::kInt4, cols)->block_cols; };
  EXPECT_EQ(group(256), 128);
  EXPECT_EQ(group(192), 64);
  EXPECT_EQ(group(160), 32);
  EXPECT_FALSE(format_at_start(StartFormat::kInt4, 48));
}

TEST(StartFormat, FitsMultiplesOfItsColumns) {
  for (const StartFormat format : kEveryStart) {
    EXPECT_TRUE(format_at_start(format, 3 * start_cols(format)));
    EXPECT_EQ(format_at_start(format, 3 * start_cols(format) + 1).has_value(), start_cols(format) == 1);
  }
}

TEST(StartFormat, StoredFormatsStayUnchanged) {
  const WeightFormats plain;
  EXPECT_FALSE(plain.any());
  const WeightFormats at_start = plain.quantised_at_start(StartFormat::kInt4);
  EXPECT_TRUE(at_start.any());
  EXPECT_EQ(at_start.at_start(), StartFormat::kInt4);
  EXPECT_EQ(at_start.method(), "");
  EXPECT_TRUE(format_of(at_start, kLinear).is_unquantised()) << "how the checkpoint stores it";
}

TEST(StartFormat, KindIsTheOneOfAllGroups) {
  EXPECT_EQ(formats_of(kFp8Settings).kind(), StartFormat::kFp8);
  EXPECT_EQ(formats_of(R"({"quant_method": "gptq", "bits": 4, "group_size": 128})").kind(), StartFormat::kInt4);
  EXPECT_EQ(formats_of(R"({"quant_method": "modelopt", "quant_algo": "NVFP4"})").kind(), StartFormat::kNvfp4);
  EXPECT_FALSE(WeightFormats().kind());
}

}  // namespace
}  // namespace tessera
