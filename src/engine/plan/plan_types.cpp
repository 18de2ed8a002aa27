// The step of a plan that chooses the types of activations and of the KV cache.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/engine/plan/plan_steps.h"
#include "tessera/model/weights/checkpoint.h"

namespace tessera {
namespace {

// Returns the type with this name; nothing for "auto".
Result<std::optional<ir::DType>> named_dtype(std::string_view option, const std::string& name) {
  if (name == "auto") return std::optional<ir::DType>();
  if (name == "float32" || name == "float") return std::optional(ir::DType::kFloat32);
  if (name == "bfloat16") return std::optional(ir::DType::kBFloat16);
  if (name == "float16" || name == "half") return std::optional(ir::DType::kFloat16);
  return invalid_argument(fmt::format("{}: \"{}\" is none of auto, float32, bfloat16, float16", option, name));
}

// Returns the cache type with this name; nothing for "auto".
Result<std::optional<ir::DType>> named_cache_dtype(const std::string& name, const DeviceProperties& device) {
  constexpr std::string_view kOption = "kv_cache_dtype";
  if (name == "fp8" || name == "fp8_e4m3") return std::optional(ir::DType::kFloat8E4M3);
  if (name == "int8" || name == "q8_0") {
    if (device.on_host) return std::optional(ir::DType::kUInt8);
    return unimplemented(
        fmt::format("{}: {} is supported on the CPU alone, not on {}; accepted there: auto, float32, bfloat16, "
                    "float16, fp8_e4m3",
                    kOption, name, device.type));
  }
  Result<std::optional<ir::DType>> named = named_dtype(kOption, name);
  if (named.ok()) return named;
  return invalid_argument(
      fmt::format("{}: \"{}\" is none of auto, float32, bfloat16, float16, fp8_e4m3, int8", kOption, name));
}

// Returns the type of most weights in the checkpoint; nothing if all weights are quantised.
std::optional<StoredDtype> most_common_dtype(const Checkpoint& checkpoint) {
  std::array<std::int64_t, kWeightDtypes.size()> elements{};
  for (const std::string_view name : checkpoint.names()) {
    const StoredTensor* tensor = checkpoint.find(name);
    const auto* type = std::ranges::find(kWeightDtypes, tensor->dtype);
    if (type != kWeightDtypes.end()) elements[type - kWeightDtypes.begin()] += tensor->num_elements();
  }
  const auto* most = std::ranges::max_element(elements);
  if (*most == 0) return std::nullopt;
  return kWeightDtypes[most - elements.begin()];
}

// Returns the type in which the model was published. This is the type that the config names. If the config names none
// (like GPT-OSS's), it is the type of most weights in the checkpoint.
Result<StoredDtype> published_dtype(PlanDraft& draft) {
  if (draft.plan.config.dtype) return *draft.plan.config.dtype;
  const std::shared_ptr<const Checkpoint> checkpoint = TRY(find_checkpoint(draft));
  return checkpoint == nullptr ? kDefaultWeightDtype : most_common_dtype(*checkpoint).value_or(kDefaultWeightDtype);
}

Result<ir::DType> choose_dtype(PlanDraft& draft) {
  const DeviceProperties& device = draft.properties();
  const std::optional<ir::DType> named = TRY(named_dtype("dtype", draft.options.dtype));
  if (named) return *named;
  // Uses float32 on a CPU without native bfloat16, where a narrow type only adds conversions.
  if (device.on_host && !device.has_native_bf16) return ir::DType::kFloat32;
  // Uses float32 with GGUF blocks on a CPU, because the kernels for blocks round their inputs to eight bits in any
  // case.
  if (device.on_host && draft.gguf) return ir::DType::kFloat32;
  const StoredDtype published = TRY(published_dtype(draft));
  if (published == StoredDtype::kBF16) return device.has_native_bf16 ? ir::DType::kBFloat16 : ir::DType::kFloat32;
  if (published == StoredDtype::kF16 && !device.on_host) return ir::DType::kFloat16;
  if (!device.on_host)
    draft.plan.notes.push_back(
        "dtype: the model computes in float32, as it is stored; --dtype bfloat16 or float16 takes half of the memory "
        "and is several times faster");
  return ir::DType::kFloat32;
}

}  // namespace

Status choose_types(PlanDraft& draft) {
  ModelOptions& model = draft.plan.model;
  model.dtype = TRY(choose_dtype(draft));
  model.kv_cache_dtype = TRY(named_cache_dtype(draft.options.kv_cache_dtype, draft.properties()));
  return ok_status();
}

}  // namespace tessera
