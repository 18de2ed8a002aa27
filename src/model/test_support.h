// Helpers for the tests in src/model: the path of real data, files that a test builds, and checks of errors.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"

namespace tessera::test {

// Returns the folder with real checkpoints and configs; empty if it does not exist.
inline std::filesystem::path shared_dir() {
  const std::filesystem::path path = testing::shared_path("");
  return std::filesystem::is_directory(path) ? path : std::filesystem::path();
}

#define TESSERA_SKIP_WITHOUT(path)              \
  do {                                          \
    if (!std::filesystem::exists(path)) {       \
      GTEST_SKIP() << "no shared data: " #path; \
    }                                           \
  } while (false)

// Returns the content of a safetensors file: the header's length, the header, and `data_bytes` bytes of data with the
// values 0, 1, 2, …
inline std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes += header;
  for (std::size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns `text` with one to three small changes. A change flips a bit, removes, repeats or overwrites bytes, or
// inserts a word that is difficult for parsers.
inline std::string mutated(std::string text, std::mt19937& random) {
  static constexpr std::string_view kWords[] = {"null",
                                                "-1",
                                                "0",
                                                "18446744073709551615",
                                                "9223372036854775807",
                                                "1e308",
                                                "-0.0",
                                                "true",
                                                "[]",
                                                "{}",
                                                "\"\"",
                                                "0.5",
                                                "[[",
                                                "\\u0000",
                                                "\xff",
                                                "{\"",
                                                ",",
                                                ":",
                                                "4611686018427387904"};
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  for (std::size_t changes = 1 + below(3); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(text.size());
    const std::size_t length = std::min(1 + below(12), text.size() - at);
    switch (below(5)) {
      case 0: text[at] = static_cast<char>(text[at] ^ (1 << below(8))); break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(at, text.substr(at, length)); break;
      case 3: text.replace(at, length, kWords[below(std::size(kWords))]); break;
      default: text.resize(at); break;
    }
  }
  return text;
}

// Checks that a Result or Status is an error with the code `code`, and that its message contains all `parts`.
template <class R>
void expect_error(const R& result, StatusCode code, const std::vector<std::string>& parts) {
  ASSERT_FALSE(result.ok());
  Status status;
  if constexpr (std::is_same_v<R, Status>) {
    status = result;
  } else {
    status = result.status();
  }
  EXPECT_EQ(status_code_name(status.code()), status_code_name(code)) << status.message();
  for (const std::string& part : parts) EXPECT_THAT(status.message(), ::testing::HasSubstr(part));
  EXPECT_LT(status.message().size(), 1500u) << status.message();
}

}  // namespace tessera::test
