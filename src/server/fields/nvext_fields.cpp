#include "tessera/server/fields/nvext_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "tessera/server/fields/retention_fields.h"

namespace tessera {
namespace {

// Returns the seconds of a text such as "5m", or nothing for other texts.
std::optional<double> seconds_of(std::string_view text) {
  std::int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  if (error != std::errc() || count < 0) return std::nullopt;
  for (const auto& [name, seconds] : {std::pair("s", 1), std::pair("m", 60), std::pair("h", 3600)}) {
    const double total = static_cast<double>(count) * seconds;
    if (unit == name && total <= RetentionHint::kMostSeconds) return total;
  }
  return std::nullopt;
}

}  // namespace

ApiResult<RetentionHint> read_nvext(const ApiFields& fields) {
  RetentionHint hint;
  const Json* const nvext = TRY(fields.object("nvext"));
  if (nvext == nullptr) return hint;
  const ApiFields inner(*nvext, fields.param("nvext."));
  for (const auto& [name, value] : inner.members()) {
    if (name != "agent_hints" && name != "cache_control" && !value.is_null())
      return inner.unsupported(name, "agent_hints and cache_control in its place");
  }
  if (const Json* const hints = TRY(inner.object("agent_hints"))) {
    const ApiFields agent(*hints, inner.param("agent_hints."));
    hint.session = TRY(read_session_name(agent, "prefix_id"));
  }
  if (const Json* const control = TRY(inner.object("cache_control"))) {
    const ApiFields cache(*control, inner.param("cache_control."));
    if (TRY(cache.string("type")).value_or("ephemeral") != "ephemeral")
      return cache.unsupported("type", "\"ephemeral\"");
    for (const auto& [name, value] : cache.members()) {
      if (name != "type" && name != "ttl" && !value.is_null()) return cache.unsupported(name, "type and ttl");
    }
    hint.seconds = seconds_of(TRY(cache.string("ttl")).value_or(""));
    if (!hint.seconds) return cache.wrong("ttl", "\"0s\" to \"24h\", in whole s, m or h, which is required");
  }
  return hint;
}

}  // namespace tessera
