// Lists the element types that checkpoints store, with their names in safetensors and config.json.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

enum class StoredDtype : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kF64,
  kI64,
  kU64,
};

// Returns the size of one element in bytes.
std::int64_t stored_dtype_bytes(StoredDtype dtype);

// Returns safetensors' spelling: "BF16", "F8_E4M3", …
std::string_view stored_dtype_name(StoredDtype dtype);
std::optional<StoredDtype> stored_dtype_from_name(std::string_view name);
// Returns all names, "BOOL, U8, …", for messages.
std::string stored_dtype_names();

// kWeightDtypes are the types that matmuls compute in. kQuantisedDtypes are the types of quantised values that are
// stored together with scales.
inline constexpr std::array kWeightDtypes{StoredDtype::kF32, StoredDtype::kF16, StoredDtype::kBF16};
inline constexpr std::array kQuantisedDtypes{StoredDtype::kF8E4M3, StoredDtype::kF8E5M2, StoredDtype::kI8};
// The types in which exponents of scales are stored. The exponent e stands for the scale 2^(e - 127), except that 255
// stands for NaN.
inline constexpr std::array kExponentDtypes{StoredDtype::kU8, StoredDtype::kF8E8M0};
// The type of weights if neither the config nor the file states a type.
inline constexpr StoredDtype kDefaultWeightDtype = StoredDtype::kBF16;
bool is_weight_dtype(StoredDtype dtype);
bool is_exponent_dtype(StoredDtype dtype);
// Parses a weight type as config.json spells it: "float32", "float16" or "bfloat16", with or without the prefix
// "torch.".
std::optional<StoredDtype> weight_dtype_from_config(std::string_view name);

}  // namespace tessera
