// Test images and data files for the tests of this folder. For tests only.
#pragma once

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/testing/paths.h"
#include "tessera/image/image.h"

namespace tessera::test {

inline std::string data_path(const std::string& name) { return testing::data_path("image/" + name); }

inline std::string read_data(const std::string& name) {
  std::ifstream file(data_path(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline std::span<const std::byte> as_file(std::string_view bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Makes the same image as the function `pixels` in tests/image/make_vectors.py. Depending on seed modulo 3, it has
// noise, edges, or a gradient with some noise.
inline Image make_test_image(std::int32_t width, std::int32_t height, std::uint32_t seed) {
  Image image{width, height};
  image.rgb.reserve(static_cast<std::size_t>(image.pixels()) * 3);
  const auto w = static_cast<std::uint32_t>(width);
  const auto h = static_cast<std::uint32_t>(height);
  for (std::uint32_t y = 0; y < h; ++y) {
    for (std::uint32_t x = 0; x < w; ++x) {
      for (std::uint32_t c = 0; c < 3; ++c) {
        std::uint32_t noise = x * 0x9E3779B1u ^ y * 0x85EBCA77u ^ c * 0xC2B2AE3Du ^ seed * 0x27D4EB2Fu;
        noise ^= noise >> 15;
        noise *= 0x2C1B3C6Du;
        noise ^= noise >> 12;
        noise >>= 24;
        const std::uint32_t edges = (x / 7 + y / 5 + c) % 2 * 255;
        const std::uint32_t gradient = x * 200 / w + y * 40 / h + noise % 16;
        image.rgb.push_back(static_cast<std::uint8_t>(seed % 3 == 0 ? noise : seed % 3 == 1 ? edges : gradient));
      }
    }
  }
  return image;
}

template <class T>
std::string sha256(const std::vector<T>& values) {
  std::array<unsigned char, 32> digest{};
  EVP_Digest(values.data(), values.size() * sizeof(T), digest.data(), nullptr, EVP_sha256(), nullptr);
  std::string hex;
  for (const unsigned char byte : digest) hex += fmt::format("{:02x}", byte);
  return hex;
}

}  // namespace tessera::test
