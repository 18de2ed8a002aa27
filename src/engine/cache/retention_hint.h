// What a client says about how long the prefix cache should keep a request's text after the request has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct RetentionHint {
  static constexpr std::int64_t kMostPriority = 100;
  static constexpr std::int64_t kUsualPriority = 50;
  static constexpr double kMostSeconds = 86'400;

  // Names the conversation to which the request belongs; "": none. The cache retains the text of the session's last
  // request alone, because that text usually continues those of the earlier ones.
  std::string session{};
  // How long the text is retained after the request's end, in (0, kMostSeconds]; 0: the session is released. Unset: as
  // long as the session's last request asked for; without one, the text is not retained.
  std::optional<double> seconds{};
  // In [1, kMostPriority]: texts of lower priority are evicted first. Unset: that of the session's last request;
  // without one, kUsualPriority.
  std::optional<std::int64_t> priority{};

  // Names the client. When too many texts are retained, those of the client with the most of them make room. A session
  // belongs to one owner, so its name must tell its owner.
  std::string owner{};

  bool any() const { return !session.empty() || seconds.has_value(); }
};

}  // namespace tessera
