#include "tessera/model/weights/weight_map.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"

namespace tessera {
namespace {

constexpr std::uintmax_t kMaxIndexBytes = 100'000'000;

}  // namespace

std::optional<ShardNumber> shard_number(std::string_view name) {
  constexpr std::string_view kPrefix = "model-";
  constexpr std::string_view kOf = "-of-";
  constexpr std::string_view kSuffix = ".safetensors";
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  const std::size_t of = name.find(kOf);
  if (of == std::string_view::npos) return std::nullopt;
  const auto number = [](std::string_view digits, int& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && value > 0;
  };
  ShardNumber shard;
  if (!number(name.substr(0, of), shard.index) || !number(name.substr(of + kOf.size()), shard.count))
    return std::nullopt;
  return shard;
}

Result<std::map<std::string, std::string>> read_weight_map(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return not_found(fmt::format("cannot read {}: {}", path, error.message()));
  if (size > kMaxIndexBytes) {
    return invalid_argument(fmt::format("{} is {} bytes long; accepted: at most {}", path, size, kMaxIndexBytes));
  }
  const Json index = TRY(Json::read_file(path));
  const Json* map = index.find("weight_map");
  if (map == nullptr || !map->is_object() || map->as_object().empty()) {
    return invalid_argument(fmt::format(
        "{}: field \"weight_map\" is {}; accepted: an object of tensor names to shard files", path, shown_value(map)));
  }
  std::map<std::string, std::string> result;
  for (const auto& [tensor, shard] : map->as_object()) {
    const auto plain = [](const std::string& name) {
      return name.ends_with(".safetensors") && name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    };
    if (!shard.is_string() || !plain(shard.as_string())) {
      return invalid_argument(fmt::format(
          "{}: weight_map: tensor \"{}\" is in {}; accepted: the name of a .safetensors file in the same folder", path,
          clip_text(tensor), shown_value(&shard)));
    }
    result.emplace(tensor, shard.as_string());
  }
  return result;
}

}  // namespace tessera
