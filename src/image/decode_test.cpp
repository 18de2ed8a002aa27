// Catches: pixels that differ from Pillow's; memory that is allocated only because a header claims a large image;
// damaged or foreign files that are accepted, cause a crash, or are refused without the reason and the limit.
#include "tessera/image/decode.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <functional>
#include <map>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/image/orientation.h"
#include "tessera/image/test_images.h"

namespace tessera {
namespace {

using test::as_file;
using test::make_test_image;
using test::read_data;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Decodes the file and returns the greatest number of bytes that take_memory got.
std::int64_t charge(std::string_view file) {
  std::int64_t most = 0;
  const std::function<Status(std::int64_t)> take_memory = [&](std::int64_t bytes) {
    EXPECT_GE(bytes, most);
    most = bytes;
    return ok_status();
  };
  DecodeLimits limits;
  limits.take_memory = &take_memory;
  const Result<Image> image = decode_image(as_file(file), limits);
  EXPECT_TRUE(image.ok()) << image.status().to_string();
  return most;
}

std::string refusal(std::string_view file, const DecodeLimits& limits = {}) {
  const Result<Image> image = decode_image(as_file(file), limits);
  if (image.ok()) return "taken";
  EXPECT_EQ(image.status().code(), StatusCode::kInvalidArgument);
  return std::string(image.status().message());
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string png_chunk(const std::string& name, const std::string& data) {
  const std::string checked = name + data;
  const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size()));
  return big_endian(static_cast<std::uint32_t>(data.size())) + checked + big_endian(static_cast<std::uint32_t>(sum));
}

// Returns an RGB PNG without pixels. Its header is valid and states this size.
std::string png_claiming(std::uint32_t width, std::uint32_t height) {
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", "") + png_chunk("IEND", "");
}

TEST(Decoding, PixelsEqualPillows) {
  const Json files = *Json::read_file(test::data_path("files.json"));
  EXPECT_EQ(files.as_object().size(), 40u);
  for (const auto& [name, expected] : files.as_object()) {
    SCOPED_TRACE(name);
    const Result<Image> image = decode_image(as_file(read_data(name)));
    ASSERT_TRUE(image.ok()) << image.status().to_string();
    EXPECT_EQ(image->width, expected.as_array()[0].as_int());
    EXPECT_EQ(image->height, expected.as_array()[1].as_int());
    EXPECT_EQ(test::sha256(image->rgb), expected.as_array()[2].as_string());
  }
}

// Pillow clips 16-bit grey to white, so this test does not compare with Pillow.
TEST(Decoding, TakesTheHighBitsOfDeepGrey) {
  const Image image = *decode_image(as_file(read_data("deep_grey.png")));
  const Image source = make_test_image(21, 13, 2);
  for (std::size_t i = 0; i < image.rgb.size(); ++i) ASSERT_EQ(image.rgb[i], source.rgb[i / 3 * 3]) << i;
}

TEST(Decoding, RefusesEveryTruncatedFile) {
  const Json files = *Json::read_file(test::data_path("files.json"));
  for (const auto& [name, expected] : files.as_object()) {
    const std::string whole = read_data(name);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const Result<Image> image = decode_image(as_file(std::string_view(whole).substr(0, size)));
      // Some truncated files lack only an end marker, padding or data after the pixels. Such an image may be read, but
      // its pixels must be complete.
      if (!image.ok()) continue;
      EXPECT_EQ(test::sha256(image->rgb), expected.as_array()[2].as_string())
          << name << ", " << size << " of " << whole.size();
    }
  }
}

TEST(Decoding, ChecksTheHeadersClaimsBeforeTakingMemory) {
  EXPECT_THAT(refusal(png_claiming(60000, 60000)),
              AllOf(HasSubstr("PNG"), HasSubstr("60000 × 60000"), HasSubstr("sides of 1 to 32768")));
  EXPECT_THAT(refusal(png_claiming(30000, 30000)),
              HasSubstr("30000 × 30000 = 900000000 pixels; accepted are at most 67108864"));
  EXPECT_THAT(refusal(png_claiming(1, 100000)), HasSubstr("1 × 100000"));
  EXPECT_THAT(refusal(png_claiming(300, 1)), HasSubstr("a ratio of the sides of at most 200"));
  EXPECT_THAT(refusal(png_claiming(0, 0)), HasSubstr("0 × 0 pixels; accepted are sides of 1"));
  EXPECT_THAT(refusal(png_claiming(0xffffffff, 2)), HasSubstr("4294967295 × 2"));
  EXPECT_THAT(refusal("P6 60000 60000 255\n"), HasSubstr("60000 × 60000"));
  EXPECT_THAT(refusal("P6 0 0 255\n"), HasSubstr("0 × 0"));

  std::string jpeg = read_data("rgb.jpg");
  const std::size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xea\x60\xea\x60");
  EXPECT_THAT(refusal(jpeg), AllOf(HasSubstr("JPEG"), HasSubstr("60000 × 60000")));

  DecodeLimits limits;
  limits.most_pixels = 21 * 13 - 1;
  for (const char* name :
       {"rgb.png", "rgb.jpg", "lossy.webp", "alpha.webp", "rgb.ppm", "palette.gif", "rgb.bmp", "rgb.tiff"}) {
    EXPECT_THAT(refusal(read_data(name), limits), HasSubstr("21 × 13 = 273 pixels; accepted are at most 272")) << name;
  }
  limits.most_bytes = 100;
  EXPECT_THAT(refusal(std::string(101, 'x'), limits), HasSubstr("101 bytes; accepted are at most 100"));
}

// The headers of these files state a size within the limits, but the files have no pixels or only one.
TEST(Decoding, RefusesAnImageWithoutItsPixels) {
  EXPECT_THAT(refusal(png_claiming(4000, 4000)), HasSubstr("the PNG image cannot be read: "));
  EXPECT_THAT(refusal("P6 40 40 255\n123"), HasSubstr("it is cut off: 3 bytes of pixels of 4800"));
}

TEST(Decoding, RefusesFilesOfOtherKinds) {
  EXPECT_THAT(
      refusal(""),
      HasSubstr("these 0 bytes are no image; accepted are PNG, JPEG, WebP, GIF, BMP, TIFF and binary PPM (P6)"));
  EXPECT_THAT(refusal("GIF8……"), HasSubstr("are no image"));
  EXPECT_THAT(refusal("RIFF"), HasSubstr("are no image"));
  EXPECT_THAT(refusal("<svg xmlns=\"http://www.w3.org/2000/svg\"/>"), HasSubstr("are no image"));
  EXPECT_THAT(refusal(read_data("animated.webp")), HasSubstr("the WebP image cannot be read: it is animated"));
  EXPECT_THAT(refusal("P6 2 2 65535\n........................"), HasSubstr("greatest value is 65535; accepted is 255"));
  EXPECT_THAT(refusal("P6 2 x"), HasSubstr("its header is not"));
  EXPECT_THAT(refusal("P6 99999999999 2 255\n"), HasSubstr("its header is not"));
  EXPECT_THAT(refusal("P6 # no line ends"), HasSubstr("its header is not"));
}

std::string gif_screen(std::uint16_t width, std::uint16_t height, const std::string& rest) {
  std::string file = "GIF89a";
  for (const std::uint16_t side : {width, height}) file += {static_cast<char>(side), static_cast<char>(side >> 8)};
  return file + std::string(3, '\0') + rest;
}

// The GIFs state sizes but have no pixels. The BMP and the TIFF state sizes that are larger than their pixel data. All
// these sizes must be refused before pixels are read.
TEST(Decoding, ChecksTheSizesOfGifBmpAndTiffFirst) {
  const std::string frame("\x2c\0\0\0\0\xff\xff\xff\xff\0\2", 11);
  EXPECT_THAT(refusal(gif_screen(1, 1, frame)), HasSubstr("the GIF image has 65535 × 65535 pixels"));
  const std::string small("\x2c\0\0\0\0\1\0\1\0\0\2", 11);
  EXPECT_THAT(refusal(gif_screen(50000, 2, small)), HasSubstr("the GIF image has 50000 × 2 pixels"));
  std::string bmp = read_data("rgb.bmp");
  bmp.replace(18, 8, std::string("\x60\xea\0\0\x60\xea\0\0", 8));
  EXPECT_THAT(refusal(bmp), HasSubstr("the BMP image has 60000 × 60000 pixels"));
  std::string tiff = read_data("rgb.tiff");
  const std::string width("\0\1\4\0\1\0\0\0", 8);
  const std::size_t at = tiff.find(width);
  ASSERT_NE(at, std::string::npos);
  tiff.replace(at + 8, 4, std::string("\x60\xea\0\0", 4));
  EXPECT_THAT(refusal(tiff), HasSubstr("the TIFF image has 60000 × 13 pixels"));
}

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

using TiffTags = std::map<std::uint16_t, std::uint32_t>;  // tag → value

// Returns a TIFF with these tags and one block. The block is a tile if the tags have a tile width. Otherwise it is a
// strip.
std::string tiff_of(TiffTags tags, const std::string& block) {
  constexpr std::uint32_t kBegin = 8;  // the block follows the header
  const bool tiled = tags.contains(322);
  tags[tiled ? 324 : 273] = kBegin;
  tags[tiled ? 325 : 279] = static_cast<std::uint32_t>(block.size());
  std::string file = std::string("II*\0", 4) + little_endian(kBegin + block.size(), 4) + block;
  file += little_endian(tags.size(), 2);
  constexpr int kLong = 4;
  for (const auto& [tag, value] : tags)
    file += little_endian(tag, 2) + little_endian(kLong, 2) + little_endian(1, 4) + little_endian(value, 4);
  return file + little_endian(0, 4);
}

// Returns a black RGB TIFF of side × side pixels, compressed with Deflate. It has one strip, or one tile of tile × tile
// pixels if `tile` > 0. If a pixel has more than three samples, the file does not say what the further samples mean.
std::string black_tiff(std::uint32_t side, std::uint32_t samples, std::uint32_t bits, std::uint32_t tile = 0) {
  const std::size_t block_side = tile > 0 ? tile : side;
  const std::string zeros(block_side * block_side * samples * bits / 8, '\0');
  uLongf size = compressBound(zeros.size());
  std::string block(size, '\0');
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(block.data()), &size, reinterpret_cast<const Bytef*>(zeros.data()),
                     zeros.size()),
            Z_OK);
  block.resize(size);
  constexpr std::uint32_t kDeflate = 8;
  constexpr std::uint32_t kRgb = 2;
  TiffTags tags{{256, side}, {257, side}, {258, bits}, {259, kDeflate}, {262, kRgb}, {277, samples}};
  if (tile > 0) {
    tags[322] = tags[323] = tile;
  } else {
    tags[278] = side;
  }
  return tiff_of(std::move(tags), block);
}

// libtiff needs memory for a whole decoded strip or tile, and for the 4 bytes per pixel that it returns.
TEST(Decoding, ChargesTheStripOrTileOfATiff) {
  constexpr std::int64_t kPixels = 100 * 100;
  EXPECT_GE(charge(black_tiff(100, 3, 8)), kPixels * (4 + 3));
  EXPECT_GE(charge(black_tiff(100, 4, 16)), kPixels * (4 + 8));
  EXPECT_GE(charge(black_tiff(100, 40, 16)), kPixels * (4 + 80));
  constexpr std::int64_t kTilePixels = 2048 * 2048;
  const std::string large_tile = black_tiff(16, 4, 16, 2048);
  EXPECT_LT(large_tile.size(), 100'000u);
  EXPECT_GE(charge(large_tile), 16 * 16 * 4 + kTilePixels * 8);
  // libjpeg keeps the coefficients of a progressive JPEG. This one has 21 × 13 pixels.
  constexpr std::uint32_t kJpeg = 7;
  constexpr std::uint32_t kYcbcr = 6;
  const TiffTags tags{{256, 21}, {257, 13}, {258, 8}, {259, kJpeg}, {262, kYcbcr}, {277, 3}, {278, 13}};
  EXPECT_GE(charge(tiff_of(tags, read_data("progressive.jpg"))), 21 * 13 * (4 + 3 + 6));
  // Small pictures stay cheap.
  EXPECT_LE(charge(black_tiff(16, 4, 16, 16)), 16 * 16 * (4 + 8) + 1000);
}

TEST(Decoding, EndsIfATiffsTileFindsNoMemory) {
  const std::function<Status(std::int64_t)> take_memory = [](std::int64_t bytes) {
    return bytes <= 1'000'000 ? ok_status() : resource_exhausted("no memory");
  };
  DecodeLimits limits;
  limits.take_memory = &take_memory;
  EXPECT_TRUE(decode_image(as_file(black_tiff(16, 4, 16, 16)), limits).ok());
  const Result<Image> image = decode_image(as_file(black_tiff(16, 4, 16, 2048)), limits);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.status().code(), StatusCode::kResourceExhausted);
}

TEST(Decoding, RefusesATiffWithLargeTiles) {
  DecodeLimits limits;
  limits.most_side = 1024;
  EXPECT_THAT(
      refusal(black_tiff(16, 3, 8, 2048), limits),
      HasSubstr("the TIFF image cannot be read: its tiles have 2048 × 2048 pixels; accepted are sides of up to 1024"));
  EXPECT_EQ(refusal(black_tiff(16, 3, 8, 1024), limits), "taken");
  // To decode a strip or tile, libtiff may allocate at most 8 · most_pixels bytes. A tile of 128 × 128 pixels with four
  // 16-bit samples needs exactly this much.
  limits = {.most_pixels = 128 * 128};
  EXPECT_EQ(refusal(black_tiff(16, 4, 16, 128), limits), "taken");
  EXPECT_THAT(refusal(black_tiff(16, 4, 16, 144), limits), HasSubstr("the TIFF image cannot be read: "));
}

TEST(Decoding, RefusesGifBmpAndTiffThatItCannotRead) {
  EXPECT_THAT(refusal(gif_screen(1, 1, ";")), HasSubstr("the GIF image cannot be read: it has no frame"));
  EXPECT_THAT(refusal(gif_screen(1, 1, "")), HasSubstr("the GIF image cannot be read: "));
  std::string bmp = read_data("rgb.bmp");
  bmp[30] = 1;
  EXPECT_THAT(refusal(bmp), HasSubstr("its compression is number 1 with 24 bits"));
  bmp = read_data("rgb.bmp");
  bmp[28] = 7;
  EXPECT_THAT(refusal(bmp), HasSubstr("its pixels have 7 bits"));
  bmp = read_data("palette.bmp");
  bmp[46] = 1;  // the header's number of colours
  EXPECT_THAT(refusal(bmp), HasSubstr("a colour that its palette lacks"));
  bmp = read_data("rgb.bmp");
  bmp[14] = 9;
  EXPECT_THAT(refusal(bmp), HasSubstr("its header has 9 bytes"));
  EXPECT_THAT(refusal(std::string("II*\0\x08\0\0\0\0\0", 10)), HasSubstr("the TIFF image"));
}

TEST(Decoding, NamesTheLibrarysReason) {
  std::string png = read_data("rgb.png");
  png[png.find("IDAT") + 10] ^= 1;
  EXPECT_THAT(refusal(png), HasSubstr("the PNG image cannot be read: "));
  std::string jpeg = read_data("rgb.jpg");
  jpeg[jpeg.find("\xff\xc0") + 4] = 12;  // the header's number of bits per sample
  EXPECT_THAT(refusal(jpeg), HasSubstr("precision 12"));
  std::string two = read_data("rgb.jpg");
  EXPECT_THAT(refusal(two.substr(0, 300)), HasSubstr("the JPEG image cannot be read: "));
  std::string webp = read_data("lossless.webp");
  webp[40] ^= 0x55;
  EXPECT_NE(refusal(webp), "");
}

// Repeats a JPEG's last scan many times. For each scan the decoder processes the whole image, which takes long.
TEST(Decoding, RefusesManyScans) {
  const std::string jpeg = read_data("progressive.jpg");
  const std::size_t last = jpeg.rfind("\xff\xda");
  ASSERT_NE(last, std::string::npos);
  const std::string scan = jpeg.substr(last, jpeg.size() - 2 - last);
  std::string many = jpeg.substr(0, jpeg.size() - 2);
  for (int i = 0; i < 200; ++i) many += scan;
  EXPECT_THAT(refusal(many + "\xff\xd9"), HasSubstr("more than 100 scans"));
}

TEST(Decoding, ReadsCommentsOfAPpm) {
  const Image image = *decode_image(as_file("P6 # one\n# two\n 1\t# three\n1 255\nabc"));
  EXPECT_EQ(image, (Image{1, 1, {'a', 'b', 'c'}}));
}

TEST(Orientation, ADamagedBlockMeansUpright) {
  const std::string exif("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  EXPECT_EQ(exif_orientation(as_file(exif)), 6);
  for (std::size_t size = 0; size < 20; ++size) EXPECT_EQ(exif_orientation(as_file(exif.substr(0, size))), 1) << size;
  std::string other = exif;
  other[18] = 9;
  EXPECT_EQ(exif_orientation(as_file(other)), 1);
  other = exif;
  other[12] = 4;  // the type of the value
  EXPECT_EQ(exif_orientation(as_file(other)), 1);
  other = exif;
  other[4] = other[5] = other[6] = other[7] = '\xff';
  EXPECT_EQ(exif_orientation(as_file(other)), 1);
}

}  // namespace
}  // namespace tessera
