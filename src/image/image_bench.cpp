// Measures the cost of an image before the vision tower, in ms on one core: decoding 1280 × 800 pixels (1.02 MP) in
// each format, and making patches for each family.
//   build/image_bench [RUNS]
#include <fmt/format.h>
#include <png.h>
#include <webp/encode.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "tessera/image/decode.h"
#include "tessera/image/patches.h"
// <cstdio> must be included before jpeglib.h, which needs it.
#include <jpeglib.h>

using namespace tessera;

namespace {

using Bytes = std::vector<std::uint8_t>;

// Makes a scene with gradients, edges and some noise, like a photograph.
Image make_scene() {
  Image image{1280, 800};
  std::uint32_t noise = 1;
  for (int y = 0; y < image.height; ++y) {
    for (int x = 0; x < image.width; ++x) {
      for (int c = 0; c < 3; ++c) {
        noise = noise * 1664525u + 1013904223u;
        const double wave = std::sin(0.013 * x * (c + 1)) + std::cos(0.017 * y);
        const int edge = (x / 160 + y / 100) % 2 * 30;
        image.rgb.push_back(static_cast<std::uint8_t>(100 + 40 * wave + edge + (noise >> 29)));
      }
    }
  }
  return image;
}

Bytes to_jpeg(const Image& image) {
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* made = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &made, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.width);
  jpeg.image_height = static_cast<JDIMENSION>(image.height);
  jpeg.input_components = 3;
  jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 90, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.rgb.data() + std::size_t{jpeg.next_scanline} * jpeg.image_width * 3);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes bytes(made, made + size);
  std::free(made);
  return bytes;
}

Bytes to_png(const Image& image) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  Bytes bytes(size);
  png_image_write_to_memory(&png, bytes.data(), &size, 0, image.rgb.data(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

Bytes to_webp(const Image& image) {
  std::uint8_t* made = nullptr;
  const std::size_t size = WebPEncodeRGB(image.rgb.data(), image.width, image.height, image.width * 3, 80, &made);
  Bytes bytes(made, made + size);
  WebPFree(made);
  return bytes;
}

Bytes to_ppm(const Image& image) {
  const std::string head = fmt::format("P6 {} {} 255\n", image.width, image.height);
  Bytes bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), image.rgb.begin(), image.rgb.end());
  return bytes;
}

// Returns the median time of `runs` calls, in ms of processor time, which other programs do not affect. Ends the
// program if a call fails.
template <class Call>
double median_ms(int runs, Call call) {
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const std::clock_t start = std::clock();
    const auto result = call();
    const std::clock_t end = std::clock();
    if (!result.ok()) {
      fmt::print(stderr, "{}\n", result.status().to_string());
      std::exit(1);
    }
    times.push_back(1e3 * static_cast<double>(end - start) / CLOCKS_PER_SEC);
  }
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return times[static_cast<std::size_t>(runs / 2)];
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(std::atoi(argv[1]), 1) : 20;
  const Image scene = make_scene();
  for (const auto& [name, file] :
       {std::pair{"JPEG", to_jpeg(scene)}, {"PNG", to_png(scene)}, {"WebP", to_webp(scene)}, {"PPM", to_ppm(scene)}}) {
    const double ms = median_ms(runs, [&file = file] { return decode_image(std::as_bytes(std::span(file))); });
    fmt::print("decode {:<5} {:>8} bytes  {:7.2f} ms\n", name, file.size(), ms);
  }
  for (const char* family : {"qwen2_vl", "qwen2_5_vl", "qwen3_vl"}) {
    const ImageProcessorConfig config = default_processor_config(family);
    const PatchGrid grid = *patch_grid(scene.width, scene.height, config);
    const double ms = median_ms(runs, [&] { return make_patches(scene, config); });
    fmt::print("patches {:<11} {} × {} pixels {:7.2f} ms\n", family, grid.w * config.patch_size,
               grid.h * config.patch_size, ms);
  }
  return 0;
}
