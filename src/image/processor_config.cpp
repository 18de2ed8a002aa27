#include "tessera/image/processor_config.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace tessera {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 26;

// Reads members of a JSON object into numbers that already have their default values.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string_view what) : object_(object), what_(what) {}

  // Leaves `to` unchanged if the member is missing or null.
  template <class T>
  Status integer(std::string_view name, std::int64_t most, T& to) const {
    const Json* value = present(name);
    if (value == nullptr) return ok_status();
    if (!value->is_int() || value->as_int() < 1 || value->as_int() > most) {
      return refused(name, *value, fmt::format("integers from 1 to {}", most));
    }
    to = static_cast<T>(value->as_int());
    return ok_status();
  }

  Status positive(std::string_view name, double& to) const {
    const Json* value = present(name);
    if (value == nullptr) return ok_status();
    if (!value->is_number() || !(value->as_double() > 0)) return refused(name, *value, "numbers above 0");
    to = value->as_double();
    return ok_status();
  }

  Status colours(std::string_view name, double least, std::array<double, 3>& to) const {
    const Json* value = present(name);
    if (value == nullptr) return ok_status();
    const std::string accepted = fmt::format("three numbers of at least {}", least);
    if (!value->is_array() || value->as_array().size() != to.size()) return refused(name, *value, accepted);
    for (std::size_t i = 0; i < to.size(); ++i) {
      const Json& number = value->as_array()[i];
      if (!number.is_number() || !(number.as_double() >= least) || std::isinf(number.as_double()))
        return refused(name, *value, accepted);
      to[i] = number.as_double();
    }
    return ok_status();
  }

  // Checks a member that may have only the value `only`, because this program implements no other value.
  Status fixed(std::string_view name, const Json& only) const {
    const Json* value = present(name);
    return value == nullptr || *value == only ? ok_status() : refused(name, *value, only.dump());
  }

  const Json* present(std::string_view name) const {
    const Json* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  Status refused(std::string_view name, const Json& value, std::string_view accepted) const {
    return invalid_argument(fmt::format("{}: {} is {}; accepted: {}", what_, name, value.dump(), accepted));
  }

 private:
  const Json& object_;
  std::string_view what_;
};

Status check_type(const FieldReader& reader) {
  const Json* type = reader.present("image_processor_type");
  if (type == nullptr) return ok_status();
  // Early checkpoints of Qwen2.5-VL have Qwen2_5_VLImageProcessor, which means the same as Qwen2VLImageProcessor.
  for (const char* known : {"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2_5_VLImageProcessor"}) {
    if (*type == Json(known)) return ok_status();
  }
  return reader.refused("image_processor_type", *type,
                        "Qwen2VLImageProcessor, Qwen2VLImageProcessorFast, Qwen2_5_VLImageProcessor");
}

}  // namespace

ImageProcessorConfig default_processor_config(std::string_view model_type) {
  ImageProcessorConfig config;
  if (model_type == "qwen2_vl" || model_type == "qwen2_5_vl") config.max_pixels = 12845056;
  if (model_type.starts_with("qwen3_vl") || model_type.starts_with("qwen3_5")) {
    config.patch_size = 16;
    config.min_pixels = 256 * 256;
    config.max_pixels = 4096 * 4096;
    config.mean = {0.5, 0.5, 0.5};
    config.std_deviation = {0.5, 0.5, 0.5};
  }
  return config;
}

Result<ImageProcessorConfig> parse_processor_config(const Json& json, std::string_view what) {
  if (!json.is_object()) return invalid_argument(fmt::format("{} is not a JSON object", what));
  constexpr std::int64_t kMostSide = 256;
  constexpr std::int64_t kMostRepeats = 16;
  constexpr std::int64_t kBicubic = 3;
  constexpr double kLeastDeviation = 1e-6;
  const FieldReader reader(json, what);
  TRY(check_type(reader));
  for (const char* step : {"do_resize", "do_rescale", "do_normalize"}) TRY(reader.fixed(step, Json(true)));
  TRY(reader.fixed("resample", Json(kBicubic)));

  ImageProcessorConfig config;
  TRY(reader.integer("patch_size", kMostSide, config.patch_size));
  TRY(reader.integer("temporal_patch_size", kMostRepeats, config.temporal_patch_size));
  TRY(reader.integer("merge_size", kMostRepeats, config.merge_size));
  if (const Json* size = reader.present("size"); size != nullptr) {
    if (!size->is_object()) return reader.refused("size", *size, "an object");
    const std::string size_of = fmt::format("{}: size", what);
    const FieldReader sizes(*size, size_of);
    TRY(sizes.integer("shortest_edge", kMostPixels, config.min_pixels));
    TRY(sizes.integer("longest_edge", kMostPixels, config.max_pixels));
  }
  TRY(reader.integer("min_pixels", kMostPixels, config.min_pixels));
  TRY(reader.integer("max_pixels", kMostPixels, config.max_pixels));
  if (config.min_pixels > config.max_pixels) {
    return invalid_argument(fmt::format("{}: the least number of pixels is {}, which must not be above the most, {}",
                                        what, config.min_pixels, config.max_pixels));
  }
  TRY(reader.positive("rescale_factor", config.rescale_factor));
  TRY(reader.colours("image_mean", 0, config.mean));
  TRY(reader.colours("image_std", kLeastDeviation, config.std_deviation));
  return config;
}

Result<ImageProcessorConfig> read_processor_config(const std::filesystem::path& preprocessor_config_json) {
  const std::string path = preprocessor_config_json.string();
  const Json json = TRY(Json::read_file(path));
  return parse_processor_config(json, path);
}

}  // namespace tessera
