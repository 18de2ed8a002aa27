#include "tessera/model/quantise/folder_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/ceil_div.h"

namespace tessera {
namespace {

constexpr FolderType kFolderTypes[] = {
    {.name = "fp8",
     .format = StartFormat::kFp8,
     .values = "weight",
     .scales = "weight_scale_inv",
     .description = "FP8"},
    {.name = "fp8-dynamic",
     .format = StartFormat::kFp8,
     .channels = true,
     .values = "weight",
     .scales = "weight_scale",
     .description = "FP8"},
    {.name = "int8",
     .format = StartFormat::kInt8,
     .channels = true,
     .values = "weight",
     .scales = "weight_scale",
     .description = "INT8"},
    {.name = "int4",
     .format = StartFormat::kInt4,
     .values = "weight_packed",
     .scales = "weight_scale",
     .description = "int4"},
    {.name = "nvfp4",
     .format = StartFormat::kNvfp4,
     .values = "weight_packed",
     .scales = "weight_scale",
     .description = "NVFP4"},
};

Json strings(std::span<const std::string> texts) {
  Json::Array list;
  for (const std::string& text : texts) list.emplace_back(text);
  return list;
}

Json fp8_config(std::span<const std::string> unquantised) {
  Json::Array block;
  block.emplace_back(128);
  block.emplace_back(128);
  Json json = Json::object();
  json.set("activation_scheme", "dynamic").set("fmt", "e4m3").set("quant_method", "fp8");
  json.set("weight_block_size", std::move(block)).set("modules_to_not_convert", strings(unquantised));
  return json;
}

// Returns a scheme of compressed-tensors. A scheme gives the type of the values and says which values share a scale.
Json scheme(const char* type, int bits, const char* strategy, bool dynamic) {
  Json json = Json::object();
  json.set("num_bits", bits).set("type", type).set("strategy", strategy).set("symmetric", true).set("dynamic", dynamic);
  return json;
}

Json weights_of(const FolderType& type, std::int64_t group) {
  if (type.format == StartFormat::kFp8) return scheme("float", 8, "channel", false);
  if (type.format == StartFormat::kInt8) return scheme("int", 8, "channel", false);
  const bool int4 = type.format == StartFormat::kInt4;
  return scheme(int4 ? "int" : "float", 4, int4 ? "group" : "tensor_group", false).set("group_size", group);
}

// Returns a scheme that says how other engines should round inputs, or null if they should not round inputs.
Json inputs_of(const FolderType& type) {
  if (!type.channels) return {};
  return scheme(type.format == StartFormat::kFp8 ? "float" : "int", 8, "token", true);
}

std::string_view format_of(const FolderType& type) {
  switch (type.format) {
    case StartFormat::kFp8: return "float-quantized";
    case StartFormat::kInt8: return "int-quantized";
    case StartFormat::kInt4: return "pack-quantized";
    case StartFormat::kNvfp4: return "nvfp4-pack-quantized";
  }
  return "";
}

}  // namespace

std::span<const FolderType> folder_types() { return kFolderTypes; }

const FolderType* find_folder_type(std::string_view name) {
  const auto* found = std::ranges::find(kFolderTypes, name, &FolderType::name);
  return found != std::end(kFolderTypes) ? found : nullptr;
}

bool uses_importance(const FolderType& type) {
  return type.format == StartFormat::kInt4 || type.format == StartFormat::kNvfp4;
}

std::vector<TensorLayout> stored_tensors(const FolderType& type, const QuantisedLinear& linear) {
  const Rounding& rounding = linear.rounding;
  const std::int64_t scale_rows = ceil_div(linear.rows, rounding.block_rows);
  const std::int64_t scale_cols = ceil_div(linear.cols, rounding.block_cols);
  const auto layout = [&](std::string_view name, StoredDtype dtype, std::vector<std::int64_t> shape) {
    return TensorLayout{.name = fmt::format("{}.{}", linear.module, name), .dtype = dtype, .shape = std::move(shape)};
  };
  constexpr std::int64_t kValuesOfWord = 8;
  std::vector<TensorLayout> tensors;
  switch (rounding.values) {
    case Rounding::Values::kE4M3:
      tensors.push_back(layout(type.values, StoredDtype::kF8E4M3, {linear.rows, linear.cols}));
      break;
    case Rounding::Values::kInt8:
      tensors.push_back(layout(type.values, StoredDtype::kI8, {linear.rows, linear.cols}));
      break;
    case Rounding::Values::kInt4:
      tensors.push_back(layout(type.values, StoredDtype::kI32, {linear.rows, linear.cols / kValuesOfWord}));
      break;
    default: tensors.push_back(layout(type.values, StoredDtype::kU8, {linear.rows, linear.cols / 2})); break;
  }
  tensors.push_back(
      layout(type.scales, rounding.has_factor() ? StoredDtype::kF8E4M3 : StoredDtype::kF32, {scale_rows, scale_cols}));
  if (rounding.values == Rounding::Values::kInt4) tensors.push_back(layout("weight_shape", StoredDtype::kI64, {2}));
  if (rounding.has_factor()) tensors.push_back(layout("weight_global_scale", StoredDtype::kF32, {1}));
  return tensors;
}

Json quantisation_config(const FolderType& type, std::span<const QuantisedLinear> linears,
                         std::span<const std::string> unquantised) {
  if (type.format == StartFormat::kFp8 && !type.channels) return fp8_config(unquantised);
  // Each group size of the linears becomes one config group. The config group of the most common size has the target
  // "Linear". The other config groups list their linears by name.
  std::map<std::int64_t, std::vector<std::string>> sizes;
  for (const QuantisedLinear& linear : linears)
    sizes[type.channels ? 0 : linear.rounding.block_cols].push_back(linear.module);
  const auto common = std::ranges::max_element(sizes, {}, [](const auto& entry) { return entry.second.size(); });
  Json groups = Json::object();
  for (const auto& [size, modules] : sizes) {
    const std::vector<std::string> targets = size == common->first ? std::vector<std::string>{"Linear"} : modules;
    Json group = Json::object();
    group.set("weights", weights_of(type, size)).set("input_activations", inputs_of(type));
    group.set("output_activations", Json()).set("targets", strings(targets)).set("format", format_of(type));
    groups.set(fmt::format("group_{}", groups.as_object().size()), std::move(group));
  }
  Json json = Json::object();
  json.set("quant_method", "compressed-tensors").set("format", format_of(type));
  json.set("quantization_status", "compressed").set("config_groups", std::move(groups));
  return json.set("ignore", strings(unquantised));
}

}  // namespace tessera
