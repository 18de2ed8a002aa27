// Computes ladders. A ladder is the ascending list of sizes for which graphs are captured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::int64_t kMaxLadderSize = std::int64_t{1} << 20;

enum class PrefillSchedule { kDefault, kLegacy, kAuto };  // auto_ladder.h describes kAuto

// Returns the token counts of prefill graphs. With kDefault they are 4–32 in steps of 4, 48–256 in steps of 16, 288–512
// in steps of 32, 576–1024 in steps of 64, 1280–4096 in steps of 256, and then in steps of 512. With kLegacy they are
// the same up to 512, then 640–4096 in steps of 128, and then in steps of 256. max_tokens is always the last size, even
// if it is not on a step. kDefault has 42 sizes up to 2048, 50 up to 4096, and 58 up to 8192.
std::vector<std::int64_t> prefill_ladder(std::int64_t max_tokens, PrefillSchedule schedule = PrefillSchedule::kDefault);

// Returns the batch sizes of decode graphs up to max_batch: 1, 2, 4, 8, 12, 16–256 in steps of 8, 272–496 in steps of
// 16, and then in steps of 32.
std::vector<std::int64_t> decode_ladder(std::int64_t max_batch);

// Parses a list as users write it: "[64,128]", "64,128", or several values of this form. The result is sorted and has
// no duplicates. `flag` names the option in errors.
Result<std::vector<std::int64_t>> parse_ladder(std::span<const std::string> values, std::string_view flag);

// Returns the smallest size that is at least `count`, or nothing if `count` exceeds the largest size. Uses binary
// search.
std::optional<std::int64_t> round_up(std::span<const std::int64_t> ladder, std::int64_t count);

}  // namespace tessera
