// Finds the format of a linear from the types of its tensors.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tessera/model/formats/format_rules.h"

namespace tessera {
namespace {

using Values = WeightFormat::Values;
using Spelling = WeightFormat::Spelling;

constexpr std::array<std::string_view, 3> kMatrices{"weight", "qweight", "weight_packed"};
constexpr std::array<std::string_view, 6> kScales{"weight_scale",        "weight_scale_inv", "weight_scale_2",
                                                  "weight_global_scale", "scales",           "qzeros"};
constexpr std::string_view kPlainTypes = "F32, F16, BF16";
constexpr std::string_view kExponentTypes = "U8, F8_E8M0";

// The stored tensors of one linear, and functions that report errors about them.
struct Tensors {
  const std::string& file;
  std::string_view module;
  const StoredTypeOf& stored;

  std::string name(std::string_view suffix) const { return fmt::format("{}.{}", module, suffix); }
  std::optional<StoredDtype> type(std::string_view suffix) const { return stored(name(suffix)); }
  bool has(std::string_view suffix) const { return type(suffix).has_value(); }
  Status wrong(std::string_view suffix, std::string_view accepted) const {
    const std::optional<StoredDtype> found = type(suffix);
    return invalid_argument(fmt::format("{}{}the checkpoint's tensor \"{}\" is {}; accepted: {}", file,
                                        file.empty() ? "" : ": ", name(suffix),
                                        found ? stored_dtype_name(*found) : "missing", accepted));
  }
};

std::string_view matrix_name(Spelling spelling) {
  switch (spelling) {
    case Spelling::kScaled:
    case Spelling::kNvfp4:
    case Spelling::kMxfp4:
    case Spelling::kNumbers:
    case Spelling::kBlocks: return "weight";
    case Spelling::kPacked:
    case Spelling::kNvfp4Packed:
    case Spelling::kMxfp4Packed: return "weight_packed";
    case Spelling::kGptq:
    case Spelling::kAwq: return "qweight";
  }
  return {};
}

StoredDtype matrix_type(const WeightFormat& format) {
  switch (format.values) {
    case Values::kUnquantised:
    case Values::kBlocks: break;
    case Values::kE4M3: return StoredDtype::kF8E4M3;
    case Values::kInt8: return StoredDtype::kI8;
    case Values::kInt4: return StoredDtype::kI32;
    case Values::kE2M1: return StoredDtype::kU8;
  }
  return StoredDtype::kBF16;
}

Status need(const Tensors& tensors, std::string_view suffix, StoredDtype type) {
  if (tensors.type(suffix) == type) return ok_status();
  return tensors.wrong(suffix, stored_dtype_name(type));
}

Status need_float(const Tensors& tensors, std::string_view suffix) {
  const std::optional<StoredDtype> type = tensors.type(suffix);
  if (type && is_weight_dtype(*type)) return ok_status();
  return tensors.wrong(suffix, kPlainTypes);
}

Status need_exponents(const Tensors& tensors, std::string_view suffix) {
  const std::optional<StoredDtype> type = tensors.type(suffix);
  if (type && is_exponent_dtype(*type)) return ok_status();
  return tensors.wrong(suffix, kExponentTypes);
}

Status refuse(const Tensors& tensors, std::string_view suffix, const WeightFormat& format) {
  if (!tensors.has(suffix)) return ok_status();
  return tensors.wrong(suffix, fmt::format("no such tensor, as the settings say {}", describe(format)));
}

// Checks the tensor of scales. Some exporters call it "weight_scale", and others call it "weight_scale_inv". Both names
// have the same meaning.
Status check_scaled(const Tensors& tensors, WeightFormat& format) {
  const std::string_view other = format.scale == "weight_scale" ? "weight_scale_inv" : "weight_scale";
  if (tensors.has(other)) {
    if (tensors.has(format.scale))
      return tensors.wrong(other, fmt::format("either this tensor or {}, not both", format.scale));
    format.scale = other;
  }
  TRY(refuse(tensors, "weight_zero_point", format));
  return need_float(tensors, format.scale);
}

Status check_packed(const Tensors& tensors, WeightFormat& format) {
  TRY(need_float(tensors, "weight_scale"));
  TRY(format.zeros ? need(tensors, "weight_zero_point", StoredDtype::kI32)
                   : refuse(tensors, "weight_zero_point", format));
  format.ordered = format.ordered || tensors.has("weight_g_idx");
  return format.ordered ? need(tensors, "weight_g_idx", StoredDtype::kI32) : ok_status();
}

// Checks the other tensors of the linear, such as scales and zero points, and sets the members of `format` that depend
// on them.
Status check_rest(const Tensors& tensors, WeightFormat& format) {
  // A few algorithms store pre_quant_scale, by which the inputs must be multiplied. No layer of this engine does so.
  TRY(refuse(tensors, "pre_quant_scale", format));
  switch (format.spelling) {
    case Spelling::kScaled: return check_scaled(tensors, format);
    case Spelling::kPacked: return check_packed(tensors, format);
    case Spelling::kGptq:
      TRY(need_float(tensors, "scales"));
      TRY(need(tensors, "qzeros", StoredDtype::kI32));
      return format.ordered ? need(tensors, "g_idx", StoredDtype::kI32) : ok_status();
    case Spelling::kAwq: TRY(need_float(tensors, "scales")); return need(tensors, "qzeros", StoredDtype::kI32);
    case Spelling::kNvfp4Packed:
      TRY(need(tensors, "weight_scale", StoredDtype::kF8E4M3));
      return need(tensors, "weight_global_scale", StoredDtype::kF32);
    case Spelling::kNvfp4:
      TRY(need(tensors, "weight_scale", StoredDtype::kF8E4M3));
      return need(tensors, "weight_scale_2", StoredDtype::kF32);
    case Spelling::kMxfp4Packed:
    case Spelling::kMxfp4: return need_exponents(tensors, "weight_scale");
    case Spelling::kNumbers:
    case Spelling::kBlocks: break;  // settings of checkpoints never have these two spellings
  }
  return ok_status();
}

// Checks that the tensors agree with `format`, and returns the completed format.
Result<WeightFormat> fit(const Tensors& tensors, std::string_view matrix, WeightFormat format) {
  if (matrix != matrix_name(format.spelling) || tensors.type(matrix) != matrix_type(format)) {
    return tensors.wrong(
        matrix, fmt::format("\"{}\" of {}, as the settings say {}; or \"weight\" of {}", matrix_name(format.spelling),
                            stored_dtype_name(matrix_type(format)), describe(format), kPlainTypes));
  }
  TRY(check_rest(tensors, format));
  return format;
}

Status refuse_scales(const Tensors& tensors) {
  for (const std::string_view scale : kScales)
    if (tensors.has(scale))
      return tensors.wrong(
          scale, fmt::format("no such tensor beside \"weight\" of {}", stored_dtype_name(*tensors.type("weight"))));
  return ok_status();
}

}  // namespace

bool has_matrix(std::string_view module, const StoredTypeOf& stored) {
  const auto has = [&](std::string_view matrix) { return stored(fmt::format("{}.{}", module, matrix)).has_value(); };
  return std::ranges::any_of(kMatrices, has);
}

Result<WeightFormat> stored_format(const FormatRules& rules, const WeightFormat* described, const WeightFormat& settled,
                                   std::string_view module, const StoredTypeOf& stored, const std::string& file) {
  const Tensors tensors{file, module, stored};
  std::string_view matrix;
  for (const std::string_view name : kMatrices) {
    if (!tensors.has(name)) continue;
    if (!matrix.empty()) return tensors.wrong(name, fmt::format("no such tensor beside \"{}\"", matrix));
    matrix = name;
  }
  if (matrix.empty()) return settled;  // the code that reads the tensor reports that it is missing
  if (matrix == "weight" && is_weight_dtype(*tensors.type(matrix))) {
    TRY(refuse_scales(tensors));
    return WeightFormat();
  }
  if (described != nullptr) return fit(tensors, matrix, *described);
  // The settings do not mention the module, so the formats of all groups are tried.
  Status first = tensors.wrong(matrix, fmt::format("{}, as the settings have no quantised weights", kPlainTypes));
  for (const FormatGroup& group : rules.groups) {
    Result<WeightFormat> format = fit(tensors, matrix, group.format);
    if (format.ok()) return format;
    if (&group == rules.groups.data()) first = std::move(format).status();
  }
  return first;
}

}  // namespace tessera
