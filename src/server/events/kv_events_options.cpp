#include "tessera/server/events/kv_events_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/base/parsed_number.h"

namespace tessera {
namespace {

constexpr std::int64_t kMostBatches = 1 << 24;
constexpr int kLargestPort = 65535;
// The address of a local socket has room for a path of 107 bytes. The last 7 bytes are for the "_dp<rank>" that
// endpoint_of() appends.
constexpr std::size_t kLongestPath = 100;
constexpr std::array<std::string_view, 10> kKeys = {"enable_kv_cache_events", "publisher", "endpoint",     "bind",
                                                    "replay_endpoint",        "topic",     "buffer_steps", "hwm",
                                                    "max_queue_size",         "format"};

Status check_endpoint(const std::string& endpoint) {
  const std::string_view text = endpoint;
  if (tcp_address(text)) return ok_status();
  if (text.starts_with("ipc://") && text.size() > 6 && text.size() <= 6 + kLongestPath) return ok_status();
  return invalid_argument(
      fmt::format("\"{}\" is not accepted; accepted: tcp://HOST:PORT, such as tcp://*:5557, and ipc://PATH with a "
                  "path of at most {} characters",
                  clip_text(endpoint), kLongestPath));
}

class ConfigReader {
 public:
  explicit ConfigReader(const Json& config) : config_(config) {}

  // Returns the member. Returns null if it is missing or has the value null. Both mean that the default applies.
  const Json* find(std::string_view key) const {
    const Json* value = config_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Status take(std::string_view key, std::optional<bool>& to) const {
    const Json* const value = find(key);
    if (value == nullptr) return ok_status();
    if (!value->is_bool()) return wrong(key, *value, "true and false");
    to = value->as_bool();
    return ok_status();
  }
  Status take(std::string_view key, std::string& to) const {
    const Json* const value = find(key);
    if (value == nullptr) return ok_status();
    if (!value->is_string()) return wrong(key, *value, "a string");
    to = value->as_string();
    return ok_status();
  }
  Status take(std::string_view key, std::int64_t least, std::int64_t& to) const {
    const Json* const value = find(key);
    if (value == nullptr) return ok_status();
    if (!value->is_int() || value->as_int() < least || value->as_int() > kMostBatches)
      return wrong(key, *value, fmt::format("integers from {} to {}", least, kMostBatches));
    to = value->as_int();
    return ok_status();
  }
  Status take_endpoint(std::string_view key, std::string& to) const {
    TRY(take(key, to));
    if (find(key) != nullptr) TRY(check_endpoint(to).with_context(fmt::format("\"{}\"", key)));
    return ok_status();
  }
  Status check_choice(std::string_view key, std::string_view one, std::string_view other) const {
    const Json* const value = find(key);
    if (value == nullptr || *value == Json(one) || *value == Json(other)) return ok_status();
    return wrong(key, *value, fmt::format("\"{}\" and \"{}\"", one, other));
  }

 private:
  static Status wrong(std::string_view key, const Json& value, std::string_view accepted) {
    return invalid_argument(
        fmt::format("\"{}\": {} is not accepted; accepted: {}", key, clip_text(value.dump()), accepted));
  }
  const Json& config_;
};

}  // namespace

std::optional<TcpAddress> tcp_address(std::string_view endpoint) {
  constexpr std::string_view kScheme = "tcp://";
  if (!endpoint.starts_with(kScheme)) return std::nullopt;
  const std::string_view address = endpoint.substr(kScheme.size());
  const std::size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const std::string_view host = address.substr(0, colon);
  const std::string_view digits = address.substr(colon + 1);
  const bool bracketed = host.starts_with('[') && host.ends_with(']');
  if (host.find_first_of(bracketed ? " \t/;" : " \t/;:") != std::string_view::npos) return std::nullopt;
  const std::optional<int> port = parsed_number<int>(digits);
  if (!port || *port < 1 || *port > kLargestPort) return std::nullopt;
  return TcpAddress{.host = std::string(host), .port = *port};
}

bool KvEventsOptions::listens() const {
  if (bind) return *bind;
  const auto has = [this](std::string_view part) { return endpoint.find(part) != std::string::npos; };
  return endpoint.starts_with("ipc://") || has("*") || has("0.0.0.0") || has("[::]");
}

Result<KvEventsOptions> parse_kv_events_config(std::string_view text) {
  const Json config = TRY(Json::parse(text, "the value"));
  if (!config.is_object())
    return invalid_argument(
        fmt::format("{} is not a JSON object; accepted: an object such as {{\"publisher\": \"zmq\"}}",
                    clip_text(std::string(text))));
  for (const auto& [key, value] : config.as_object()) {
    if (std::ranges::find(kKeys, key) == kKeys.end())
      return invalid_argument(fmt::format("unknown key \"{}\"; accepted: {}", clip_text(key), fmt::join(kKeys, ", ")));
  }
  const ConfigReader reader(config);
  KvEventsOptions options;
  std::optional<bool> enable;
  std::string publisher;
  TRY(reader.take("enable_kv_cache_events", enable));
  TRY(reader.check_choice("publisher", "zmq", "null"));
  TRY(reader.take("publisher", publisher));
  TRY(reader.take_endpoint("endpoint", options.endpoint));
  TRY(reader.take("bind", options.bind));
  TRY(reader.take_endpoint("replay_endpoint", options.replay_endpoint));
  TRY(reader.take("topic", options.topic));
  TRY(reader.take("buffer_steps", 0, options.buffer_steps));
  TRY(reader.take("hwm", 1, options.hwm));
  TRY(reader.take("max_queue_size", 1, options.max_queue_size));
  TRY(reader.check_choice("format", "default", "dynamo"));
  // vLLM's configurations have "enable_kv_cache_events". If it is true, "publisher" may be missing. SGLang's
  // configurations have only "publisher".
  options.enabled = enable.value_or(publisher == "zmq") && publisher != "null";
  if (options.enabled && options.endpoint == options.replay_endpoint)
    return invalid_argument(fmt::format("\"replay_endpoint\": {} is also the \"endpoint\"; accepted: another address",
                                        options.replay_endpoint));
  return options;
}

std::string endpoint_of(const std::string& endpoint, int rank) {
  if (endpoint.empty() || rank == 0) return endpoint;
  if (endpoint.starts_with("ipc://")) return fmt::format("{}_dp{}", endpoint, rank);
  const std::optional<TcpAddress> first = tcp_address(endpoint);
  return first ? fmt::format("tcp://{}:{}", first->host, first->port + rank) : endpoint;
}

Status check_ports(const std::optional<TcpAddress>& first, int engines) {
  if (!first || first->port + engines - 1 <= kLargestPort) return ok_status();
  return invalid_argument(fmt::format("{} engines need the ports {} to {}; accepted: ports of at most {}", engines,
                                      first->port, first->port + engines - 1, kLargestPort));
}

}  // namespace tessera
