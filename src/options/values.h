// Parses the values of flags. Errors name the flag, the value and the accepted values.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/base/strong_id.h"

namespace tessera {

struct IntegerRange {
  std::int64_t min = 1;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
};
Result<std::int64_t> parse_integer(std::string_view flag, std::string_view text, IntegerRange range);

// Reads a whole number that may have one of vLLM's suffixes. k, m, g and t are powers of 1000 and allow fractions
// ("25.6k" is 25600). K, M, G and T are powers of 1024 and need whole numbers ("32K" is 32768).
Result<std::int64_t> parse_count(std::string_view flag, std::string_view text, IntegerRange range);

// Reads a finite number.
Result<double> parse_number(std::string_view flag, std::string_view text);

// Reads a number of bytes, at least 1: "67108864", "64M", "0.5GiB", "2GB". K, M, G, T and KiB … TiB are powers of 1024.
// KB … TB are powers of 1000.
Result<std::int64_t> parse_bytes(std::string_view flag, std::string_view text);

// Reads a list such as "a,b,c": at least one name, none of them empty.
Result<std::vector<std::string>> parse_names(std::string_view flag, std::string_view text);

// Reads "1,2,3" or "[1, 2, 3]": at least one id, none of them negative. The engine checks that the model has these ids.
Result<std::vector<TokenId>> parse_token_ids(std::string_view flag, std::string_view text);

// Reads the name of a format to which the engine quantises linears when it starts (model/formats/start_format.h).
Result<std::string> parse_start_format(std::string_view flag, std::string_view text);

// Returns the index of `text` in `choices`.
Result<std::size_t> parse_choice(std::string_view flag, std::string_view text,
                                 std::span<const std::string_view> choices);

}  // namespace tessera
