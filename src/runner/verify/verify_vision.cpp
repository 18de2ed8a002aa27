#include "tessera/runner/verify/verify_vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tessera/runner/host_floats.h"

namespace tessera {
namespace {

// Makes an image of rows × columns merge units (squares of patches that become one token).
Patches make_image(const VisionConfig& config, std::int64_t rows, std::int64_t columns) {
  Patches image{.grid = {.t = 1,
                         .h = static_cast<std::int32_t>(rows * config.merge_size),
                         .w = static_cast<std::int32_t>(columns * config.merge_size)},
                .merge_size = static_cast<std::int32_t>(config.merge_size),
                .patch_values = config.patch_values()};
  image.values.resize(static_cast<std::size_t>(image.grid.patches() * image.patch_values));
  return image;
}

// Makes images with `units` merge units in total: a square image, and an image of one row with the remaining units.
std::vector<Patches> make_images(const VisionConfig& config, std::int64_t units) {
  const auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(units) * 2 / 3));
  std::vector<Patches> images;
  if (side > 0) images.push_back(make_image(config, side, side));
  if (const std::int64_t rest = units - side * side; rest > 0) images.push_back(make_image(config, 1, rest));
  std::uint32_t random = 12345;
  for (Patches& image : images)
    for (float& value : image.values) {
      random = random * 1664525U + 1013904223U;
      value = static_cast<float>(random >> 8) * 0x1p-23F - 1;
    }
  return images;
}

class VisionVerifier {
 public:
  explicit VisionVerifier(VisionRunner& vision) : vision_(vision) {}

  Result<std::vector<VerifyRow>> run() {
    const std::unique_ptr<Executable> isolated = TRY(vision_.make_isolated());
    std::int64_t below = 0;
    for (const std::int64_t size : vision_.runner().report().captured) {
      TRY(isolated->bind(vision_.runner().bucket(size)));
      const std::int64_t unit = vision_.config().merged_patches();
      TRY(compare(*isolated, size, size));
      if (below + unit < size) TRY(compare(*isolated, size, below + unit));
      isolated->drop(vision_.runner().bucket(size));
      below = size;
    }
    return std::move(rows_);
  }

 private:
  Status compare(Executable& isolated, std::int64_t size, std::int64_t real) {
    const ir::Bucket bucket = vision_.runner().bucket(size);
    const std::vector<Patches> images = make_images(vision_.config(), real / vision_.config().merged_patches());
    TRY(poison_patches(size));
    TRY(stage(images, size));
    TRY(vision_.run(size, /*graph=*/true));
    const std::vector<std::byte> replayed = TRY(read(vision_.runner().executable(), bucket, real));
    TRY(isolated.poison(bucket));
    TRY(isolated.run(bucket));
    const std::vector<std::byte> expected = TRY(read(isolated, bucket, real));
    std::string difference = TRY(first_difference(isolated, bucket, replayed, expected));
    if (const Status guards = isolated.check_guards(bucket); !guards.ok() && difference.empty())
      difference = guards.message();
    rows_.push_back({.runner = "vision", .size = size, .real = real, .difference = std::move(difference)});
    return ok_status();
  }

  Status stage(const std::vector<Patches>& images, std::int64_t size) {
    std::vector<const Patches*> pointers;
    for (const Patches& image : images) pointers.push_back(&image);
    return vision_.stage(pointers, size);
  }

  // Fills the patches of the whole forward with NaN. Images that are staged later leave the NaNs in the padding.
  Status poison_patches(std::int64_t size) {
    Patches image = make_image(vision_.config(), 1, size / vision_.config().merged_patches());
    std::ranges::fill(image.values, std::numeric_limits<float>::quiet_NaN());
    const Patches* pointer = &image;
    return vision_.stage(std::span(&pointer, 1), size);
  }

  // Downloads the output rows of the first `real` patches. The rows after them are padding.
  Result<std::vector<std::byte>> read(const Executable& executable, const ir::Bucket& bucket, std::int64_t real) {
    const TensorView rows = TRY(executable.output(bucket, 0));
    const std::int64_t tokens = real / vision_.config().merged_patches();
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows.bytes() / rows.dim(0) * tokens));
    TRY(vision_.stream().download(bytes.data(), rows.data, bytes.size()));
    TRY(vision_.stream().synchronize());
    return bytes;
  }

  Result<std::string> first_difference(const Executable& executable, const ir::Bucket& bucket,
                                       const std::vector<std::byte>& replayed, const std::vector<std::byte>& expected) {
    const TensorView rows = TRY(executable.output(bucket, 0));
    const auto place = [&](std::ptrdiff_t value) {
      return fmt::format("row {} column {}", value / rows.cols(), value % rows.cols());
    };
    const auto element = static_cast<std::ptrdiff_t>(ir::dtype_size(rows.dtype));
    const auto differs = std::ranges::mismatch(replayed, expected).in1 - replayed.begin();
    if (differs < std::ssize(replayed)) return place(differs / element) + " differs from the isolated run";
    std::vector<float> values(expected.size() / static_cast<std::size_t>(element));
    TRY(widen_floats(expected.data(), rows.dtype, values));
    const auto nan = std::ranges::find_if(values, [](float v) { return std::isnan(v); }) - values.begin();
    if (nan < std::ssize(values)) return place(nan) + " is NaN: a real row read padding";
    return std::string();
  }

  VisionRunner& vision_;
  std::vector<VerifyRow> rows_;
};

}  // namespace

Result<std::vector<VerifyRow>> verify_vision(VisionRunner& vision) { return VisionVerifier(vision).run(); }

}  // namespace tessera
