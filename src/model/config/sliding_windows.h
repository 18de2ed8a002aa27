// Reads from config.json which layers attend through a sliding window, in all spellings.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

// Reads `sliding_window`: returns nothing if it is null, and `absent` if it is absent.
Result<std::optional<std::int64_t>> read_sliding_window(const Fields& fields, std::optional<std::int64_t> absent);

// Sets config.sliding_windows: the layers that `layer_types` calls sliding have the window; without that list the
// layers from `first` on have it. Without a window no layer has one, and a list with sliding layers is refused.
Status set_sliding_windows(const Fields& fields, std::optional<std::int64_t> window, std::int64_t first,
                           ModelConfig& config);

// Like set_sliding_windows(), but without the list the last of every `period` layers sees everything, and the others
// have the window. Refuses a list that disagrees with a period that the file gives under `period_key`.
Status set_periodic_windows(const Fields& fields, std::optional<std::int64_t> window, const char* period_key,
                            std::int64_t absent_period, ModelConfig& config);

// Refuses a `layer_types` with sliding layers, for architectures without windows.
Status set_full_attention(const Fields& fields, ModelConfig& config);

}  // namespace tessera
