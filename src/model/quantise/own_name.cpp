#include "tessera/model/quantise/own_name.h"

#include <charconv>
#include <system_error>

namespace tessera {
namespace {

// Parses the number at position `at`. A dot must follow the number.
std::optional<std::int64_t> number_at(std::string_view name, std::size_t at, std::size_t& end) {
  std::int64_t number = 0;
  const auto [stop, error] = std::from_chars(name.data() + at, name.data() + name.size(), number);
  end = static_cast<std::size_t>(stop - name.data());
  if (error != std::errc() || number < 0 || end >= name.size() || name[end] != '.') return std::nullopt;
  return number;
}

}  // namespace

OwnName parse_own_name(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  constexpr std::string_view kExperts = "experts.";
  OwnName own;
  std::size_t end = 0;
  if (name.starts_with(kLayers)) own.layer = number_at(name, kLayers.size(), end);
  if (!own.layer) return {.layer = {}, .expert = {}, .rest = "/" + std::string(name)};
  own.rest = name.substr(end + 1);
  const std::size_t experts = own.rest.find(kExperts);
  if (experts == std::string::npos) return own;
  own.expert = number_at(own.rest, experts + kExperts.size(), end);
  if (own.expert) own.rest = own.rest.substr(0, experts + kExperts.size()) + "{}" + own.rest.substr(end);
  return own;
}

}  // namespace tessera
