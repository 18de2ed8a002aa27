// Which layers attend through a sliding window: the spellings of config.json.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/status.h"
#include "tessera/model/config/config.h"
#include "tessera/model/config/fields.h"

namespace tessera {

// `sliding_window`: none where it is null, `absent` where it is not there.
Result<std::optional<std::int64_t>> read_sliding_window(const Fields& fields, std::optional<std::int64_t> absent);

// Sets config.sliding_windows: the layers that `layer_types` calls sliding, or, where the config has no such list, the
// layers from `first` on have the window. Without a window no layer has one, and a list that says so is refused.
Status set_sliding_windows(const Fields& fields, std::optional<std::int64_t> window, std::int64_t first,
                           ModelConfig& config);

// The same, but without such a list the last of every `period` layers sees all, and the others have the window. A list
// that disagrees with `period`, where the file gives one under `period_key`, is refused.
Status set_periodic_windows(const Fields& fields, std::optional<std::int64_t> window, const char* period_key,
                            std::int64_t absent_period, ModelConfig& config);

// For architectures without windows: refuses a `layer_types` that has any.
Status set_full_attention(const Fields& fields, ModelConfig& config);

}  // namespace tessera
