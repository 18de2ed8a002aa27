// Reads from config.json which layers attend within a sliding window. The functions cover the spellings of all
// families.
#pragma once

#include <cstdint>
#include <optional>

#include "tessera/base/json_fields.h"
#include "tessera/base/status.h"
#include "tessera/model/config/config.h"

namespace tessera {

// Reads `sliding_window`. Returns nothing if the field is null, and `absent` if the field is absent.
Result<std::optional<std::int64_t>> read_sliding_window(const Fields& fields, std::optional<std::int64_t> absent);

// Sets config.sliding_windows. The layers that `layer_types` calls sliding get the window. If config.json has no
// `layer_types`, layer `first` and all later layers get the window. If `window` is empty, no layer gets a window, and a
// `layer_types` with a sliding layer is refused.
Status set_sliding_windows(const Fields& fields, std::optional<std::int64_t> window, std::int64_t first,
                           ModelConfig& config);

// Like set_sliding_windows(), but with another rule for a config.json without `layer_types`. In every `period` layers,
// the last layer has full attention, and the others have the window. The period is the value of the field `period_key`,
// or `absent_period` if the field is absent. Refuses a `layer_types` that contradicts the field.
Status set_periodic_windows(const Fields& fields, std::optional<std::int64_t> window, const char* period_key,
                            std::int64_t absent_period, ModelConfig& config);

// Sets full attention for all layers, for architectures without windows. Refuses a `layer_types` with sliding layers.
Status set_full_attention(const Fields& fields, ModelConfig& config);

}  // namespace tessera
