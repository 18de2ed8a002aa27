// Catches: crashes, endless work and memory beyond the limits when an image is decoded and cut into patches; missing
// pixels; results that differ from run to run.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "fuzz.h"
#include "tessera/image/decode.h"
#include "tessera/image/patches.h"

using namespace tessera;

namespace {

constexpr DecodeLimits kLimits{.most_bytes = 1 << 16, .most_pixels = 1 << 16, .most_side = 4096, .most_ratio = 100};

// Gives a mutated PNG valid checksums. With wrong checksums, libpng would read only a small part of the file.
std::string with_checksums(std::string file) {
  constexpr std::size_t kSignature = 8;
  for (std::size_t at = kSignature; at + 12 <= file.size();) {
    const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(file[at + i])}; };
    const std::size_t size = byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
    if (size > file.size() - at - 12) break;
    const auto* checked = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    const uLong sum = crc32(0, checked, static_cast<uInt>(size + 4));
    for (std::size_t i = 0; i < 4; ++i) file[at + 8 + size + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += size + 12;
  }
  return file;
}

void check_patches(const Image& image) {
  ImageProcessorConfig config;
  config.min_pixels = 28 * 28;
  config.max_pixels = 28 * 28 * 40;
  const Result<Patches> patches = make_patches(image, config);
  fuzz::require(patches.ok(), "what is decoded within the processors' ratio can be cut into patches");
  fuzz::require(patches->grid == *patch_grid(image.width, image.height, config), "the grid is known from the size");
  fuzz::require(patches->tokens() >= 1, "an image has tokens");
  fuzz::require(static_cast<std::int64_t>(patches->values.size()) == patches->grid.patches() * patches->patch_values,
                "every patch has its values");
  fuzz::require(std::all_of(patches->values.begin(), patches->values.end(), [](float v) { return std::abs(v) < 3; }),
                "values are those of colours");
}

void check(const std::string& input) {
  const auto file = std::as_bytes(std::span(input));
  const Result<Image> image = decode_image(file, kLimits);
  const Result<Image> again = decode_image(file, kLimits);
  fuzz::require(image.ok() == again.ok(), "a file is taken or refused");
  if (!image.ok()) {
    fuzz::require(image.status().code() == StatusCode::kInvalidArgument, "a refusal is the file's fault");
    fuzz::require(image.status().message() == again.status().message(), "a refusal has one reason");
    return;
  }
  fuzz::require(*image == *again, "a file has one image");
  fuzz::require(static_cast<std::int64_t>(image->rgb.size()) == image->pixels() * 3, "every pixel is there");
  fuzz::require(image->pixels() <= kLimits.most_pixels, "no more than the limit is decoded");
  check_patches(*image);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string input(fuzz::as_text(data, size));
  check(input);
  if (input.starts_with("\x89PNG")) check(with_checksums(std::move(input)));
  return 0;
}
