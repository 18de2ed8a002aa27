// Ladders: the ascending sizes for which graphs are captured.
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

enum class PrefillSchedule { kDefault, kLegacy, kAuto };  // kAuto: auto_ladder.h

// Returns the token counts of prefill graphs. kDefault: 4–32 step 4, 48–256 step 16, 288–512 step 32, 576–1024 step 64,
// 1280–4096 step 256, then step 512. kLegacy: the same up to 512, then 640–4096 step 128, then step 256. The ladder
// ends at max_tokens, which becomes the last size even if it is not on a step. kDefault has 42 sizes up to 2048, 50 up
// to 4096, and 58 up to 8192.
std::vector<std::int64_t> prefill_ladder(std::int64_t max_tokens, PrefillSchedule schedule = PrefillSchedule::kDefault);

// Returns the batch sizes of decode graphs: 1, 2, 4, 8, 12, 16–256 step 8, 272–496 step 16, then step 32; to max_batch.
std::vector<std::int64_t> decode_ladder(std::int64_t max_batch);

// Parses a list as users write it: "[64,128]", "64,128", or several values that are such lists. The result is sorted,
// without repeats. `flag` names the option in errors.
Result<std::vector<std::int64_t>> parse_ladder(std::span<const std::string> values, std::string_view flag);

// Returns the smallest size >= count, by binary search; nothing if count is above the largest.
std::optional<std::int64_t> round_up(std::span<const std::int64_t> ladder, std::int64_t count);

}  // namespace tessera
