#include "tessera/model/config/sliding_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace tessera {
namespace {

// Returns a list [num_hidden_layers] that says whether each layer has a window, or nothing if the config has no
// `layer_types`.
Result<std::optional<std::vector<bool>>> read_layer_types(const Fields& fields, const ModelConfig& config) {
  const Json* types = fields.find("layer_types");
  if (types == nullptr) return std::optional<std::vector<bool>>();
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  const std::string accepted =
      fmt::format("a list of num_hidden_layers ({}) times \"full_attention\" or \"sliding_attention\"", layers);
  if (!types->is_array() || types->as_array().size() != layers) return fields.wrong("layer_types", accepted);
  std::vector<bool> slides;
  for (const Json& type : types->as_array()) {
    if (!type.is_string()) return fields.wrong("layer_types", accepted);
    slides.push_back(type.as_string() == "sliding_attention");
    if (!slides.back() && type.as_string() != "full_attention") return fields.unsupported("layer_types", accepted);
  }
  return std::optional(std::move(slides));
}

bool any(const std::optional<std::vector<bool>>& slides) { return slides && std::ranges::count(*slides, true) > 0; }

}  // namespace

Result<std::optional<std::int64_t>> read_sliding_window(const Fields& fields, std::optional<std::int64_t> absent) {
  if (!fields.has("sliding_window")) return absent;
  return fields.optional_int("sliding_window", 1, std::numeric_limits<std::int32_t>::max());
}

Status set_sliding_windows(const Fields& fields, std::optional<std::int64_t> window, std::int64_t first,
                           ModelConfig& config) {
  const std::optional<std::vector<bool>> declared = TRY(read_layer_types(fields, config));
  if (!window && any(declared)) {
    return fields.wrong("layer_types",
                        "only \"full_attention\" where sliding_window is null or use_sliding_window is not true");
  }
  config.sliding_windows.clear();
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const bool slides = declared ? (*declared)[static_cast<std::size_t>(layer)] : layer >= first;
    config.sliding_windows.push_back(slides ? window.value_or(0) : 0);
  }
  return ok_status();
}

Status set_periodic_windows(const Fields& fields, std::optional<std::int64_t> window, const char* period_key,
                            std::int64_t absent_period, ModelConfig& config) {
  const std::optional<std::int64_t> period = TRY(fields.optional_int(period_key, 1, ModelConfig::kMaxLayers));
  TRY(set_sliding_windows(fields, window, /*first=*/0, config));
  const bool declared = fields.find("layer_types") != nullptr;
  if (!window || (declared && !period)) return ok_status();
  for (std::size_t layer = 0; layer < config.sliding_windows.size(); ++layer) {
    const bool slides = (static_cast<std::int64_t>(layer) + 1) % period.value_or(absent_period) != 0;
    if (declared && slides != (config.sliding_windows[layer] > 0))
      return fields.wrong("layer_types", fmt::format("\"full_attention\" for the last of every {} layers and "
                                                     "\"sliding_attention\" for the others, because {} is {}",
                                                     *period, period_key, *period));
    config.sliding_windows[layer] = slides ? *window : 0;
  }
  return ok_status();
}

Status set_full_attention(const Fields& fields, ModelConfig& config) {
  TRY(read_sliding_window(fields, std::nullopt));  // only checks the field; the value is not used
  if (any(TRY(read_layer_types(fields, config)))) {
    return fields.unsupported("layer_types", fmt::format("only \"full_attention\" in {}", config.architecture));
  }
  config.sliding_windows.assign(static_cast<std::size_t>(config.num_hidden_layers), 0);
  return ok_status();
}

}  // namespace tessera
