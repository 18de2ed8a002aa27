// The element types that a checkpoint stores, with the names that safetensors and config.json use.
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

// Returns the bytes of one element.
std::int64_t stored_dtype_bytes(StoredDtype dtype);

// Returns safetensors' spelling: "BF16", "F8_E4M3", …
std::string_view stored_dtype_name(StoredDtype dtype);
std::optional<StoredDtype> stored_dtype_from_name(std::string_view name);
// Returns "BOOL, U8, …", for messages.
std::string stored_dtype_names();

// The types in which weights are computed; then the types in which quantised weights are stored, beside a scale.
inline constexpr std::array kWeightDtypes{StoredDtype::kF32, StoredDtype::kF16, StoredDtype::kBF16};
inline constexpr std::array kQuantisedDtypes{StoredDtype::kF8E4M3, StoredDtype::kF8E5M2, StoredDtype::kI8};
// The types in which exponents of scales are stored: e means 2^(e - 127), and 255 is NaN.
inline constexpr std::array kExponentDtypes{StoredDtype::kU8, StoredDtype::kF8E8M0};
bool is_weight_dtype(StoredDtype dtype);
bool is_exponent_dtype(StoredDtype dtype);
// Parses config.json's spelling of the types of weights: "float32", "float16", "bfloat16", also with the prefix
// "torch.".
std::optional<StoredDtype> weight_dtype_from_config(std::string_view name);

}  // namespace tessera
