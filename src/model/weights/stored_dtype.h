// The element types a checkpoint stores, under the names safetensors and config.json give them.
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

// Bytes of one element.
std::int64_t stored_dtype_bytes(StoredDtype dtype);

// safetensors' spelling: "BF16", "F8_E4M3", …
std::string_view stored_dtype_name(StoredDtype dtype);
std::optional<StoredDtype> stored_dtype_from_name(std::string_view name);
// "BOOL, U8, …", for messages.
std::string stored_dtype_names();

// The types weights are computed in, and those that quantised ones are stored in, beside a scale.
inline constexpr std::array kWeightDtypes{StoredDtype::kF32, StoredDtype::kF16, StoredDtype::kBF16};
inline constexpr std::array kQuantisedDtypes{StoredDtype::kF8E4M3, StoredDtype::kF8E5M2, StoredDtype::kI8};
bool is_weight_dtype(StoredDtype dtype);
// config.json's spelling of those: "float32", "float16", "bfloat16", also with "torch." before it.
std::optional<StoredDtype> weight_dtype_from_config(std::string_view name);

}  // namespace tessera
