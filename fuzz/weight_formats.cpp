// Catches: crashes and endless work on quantisation settings (in config.json or in a separate file) and on the module
// patterns in these settings; a linear layer that is classified as both plain and quantised.
#include <array>
#include <optional>
#include <string>

#include "fuzz.h"
#include "tessera/model/formats/weight_formats.h"

using namespace tessera;

namespace {

constexpr std::array kModules = {"model.layers.0.self_attn.q_proj",
                                 "model.language_model.layers.11.mlp.experts.3.down_proj", "lm_head"};

// Returns a type that depends on the tensor's name alone. Every fourth tensor has no type.
std::optional<StoredDtype> stored_type(std::string_view tensor) {
  constexpr std::array kTypes = {StoredDtype::kBF16, StoredDtype::kF8E4M3, StoredDtype::kI32,
                                 StoredDtype::kU8,   StoredDtype::kI8,     StoredDtype::kF32};
  std::size_t sum = 0;
  for (const char byte : tensor) sum = 31 * sum + static_cast<unsigned char>(byte);
  if (sum % 4 == 0) return std::nullopt;
  return kTypes[sum % kTypes.size()];
}

bool is_refusal(const Status& status) {
  return status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnimplemented ||
         status.code() == StatusCode::kResourceExhausted;
}

void check(const Result<WeightFormats>& formats) {
  if (!formats.ok()) {
    fuzz::require(is_refusal(formats.status()), "a refusal is the file's fault");
    return;
  }
  fuzz::require(formats->any() != formats->method().empty(), "formats have a method exactly if something is quantised");
  for (const char* module : kModules) {
    const Result<WeightFormat> settled = formats->of(module);
    if (!settled.ok()) fuzz::require(is_refusal(settled.status()), "a module's refusal is the file's fault");
    if (settled.ok() && !settled->is_unquantised()) {
      fuzz::require(formats->any(), "where nothing is quantised every module is plain");
      fuzz::require(settled->block_rows >= 0 && settled->block_cols >= 0, "a block has no negative size");
    }
    const Result<WeightFormat> stored = formats->of(module, stored_type);
    if (!stored.ok()) fuzz::require(is_refusal(stored.status()), "a tensor's refusal is the file's fault");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = Json::parse(fuzz::as_text(data, size), "config.json");
  if (!json.ok()) return 0;
  check(WeightFormats::read(*json, nullptr, "config.json"));
  const Json none = Json::object();
  check(WeightFormats::read(none, &*json, "config.json"));
  return 0;
}
