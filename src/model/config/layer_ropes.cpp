#include "tessera/model/config/layer_ropes.h"

#include <fmt/format.h>

#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

// Limits of the accepted rope_theta.
constexpr double kLeastTheta = 1.001;
constexpr double kGreatestTheta = 1e15;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// Adds the architecture's θ if config.json has none.
Json with_theta(Json members, double theta) {
  if (members.find("rope_theta") == nullptr) members.set("rope_theta", theta);
  return members;
}

Result<RopeConfig> read_kind(const Json& parameters, const char* kind, const std::string& file,
                             const RopeContext& context, double theta) {
  const Json* of_kind = parameters.find(kind);
  if (of_kind == nullptr || !of_kind->is_object())
    return Fields(parameters, file, "rope_parameters.")
        .wrong(kind, fmt::format("an object, as layers of {} have one", kind == kFull ? kSliding : kFull));
  Json members = Json::object();
  members.set("rope_parameters", *of_kind);
  return read_rope_config(with_theta(std::move(members), theta), fmt::format("{}, layers of {}", file, kind), context);
}

}  // namespace

Status read_rope(const Json& config, const std::string& file, const RopeContext& context, RopeConfig& rope) {
  const Fields fields(config, file);
  const bool has_variant = fields.find("rope_parameters") != nullptr || fields.find("rope_scaling") != nullptr;
  if (!has_variant && rope.type != RopeType::kDefault) {
    rope.theta = TRY(fields.optional_number("rope_theta", kLeastTheta, kGreatestTheta)).value_or(rope.theta);
    return ok_status();
  }
  rope = TRY(read_rope_config(with_theta(config, rope.theta), file, context));
  return ok_status();
}

Status read_layer_ropes(const Json& config, const std::string& file, const LayerRope& full, const LayerRope& sliding) {
  const Fields fields(config, file);
  const Json* parameters = fields.find("rope_parameters");
  const bool nested = parameters != nullptr && parameters->is_object() &&
                      (parameters->find(kFull) != nullptr || parameters->find(kSliding) != nullptr);
  if (nested) {
    full.rope = TRY(read_kind(*parameters, kFull, file, full.context, full.rope.theta));
    sliding.rope = TRY(read_kind(*parameters, kSliding, file, sliding.context, sliding.rope.theta));
    return ok_status();
  }
  TRY(read_rope(config, file, full.context, full.rope));
  const std::optional<double> local = TRY(fields.optional_number("rope_local_base_freq", kLeastTheta, kGreatestTheta));
  sliding.rope.theta = local.value_or(sliding.rope.theta);
  return ok_status();
}

}  // namespace tessera
