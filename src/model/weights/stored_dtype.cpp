#include "tessera/model/weights/stored_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera {
namespace {

struct Row {
  std::string_view name;
  std::int64_t bytes;
};

// The types' names and sizes, in the order of the enum.
constexpr std::array kRows = std::to_array<Row>({
    {"BOOL", 1},
    {"U8", 1},
    {"I8", 1},
    {"F8_E5M2", 1},
    {"F8_E4M3", 1},
    {"F8_E8M0", 1},
    {"I16", 2},
    {"U16", 2},
    {"F16", 2},
    {"BF16", 2},
    {"I32", 4},
    {"U32", 4},
    {"F32", 4},
    {"F64", 8},
    {"I64", 8},
    {"U64", 8},
});
static_assert(kRows.size() == static_cast<std::size_t>(StoredDtype::kU64) + 1);

const Row& row(StoredDtype dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::int64_t stored_dtype_bytes(StoredDtype dtype) { return row(dtype).bytes; }

std::string_view stored_dtype_name(StoredDtype dtype) { return row(dtype).name; }

std::optional<StoredDtype> stored_dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<StoredDtype>(i);
  }
  return std::nullopt;
}

std::string stored_dtype_names() {
  std::string names;
  for (const Row& r : kRows) {
    if (!names.empty()) names += ", ";
    names += r.name;
  }
  return names;
}

bool is_weight_dtype(StoredDtype dtype) { return std::ranges::find(kWeightDtypes, dtype) != kWeightDtypes.end(); }
bool is_exponent_dtype(StoredDtype dtype) { return std::ranges::find(kExponentDtypes, dtype) != kExponentDtypes.end(); }

std::optional<StoredDtype> weight_dtype_from_config(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  if (name == "float32") return StoredDtype::kF32;
  if (name == "float16") return StoredDtype::kF16;
  if (name == "bfloat16") return StoredDtype::kBF16;
  return std::nullopt;
}

}  // namespace tessera
