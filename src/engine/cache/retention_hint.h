// A client's wish for how long the prefix cache keeps a request's text after the request has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

struct RetentionHint {
  static constexpr std::int64_t kMostPriority = 100;
  static constexpr std::int64_t kUsualPriority = 50;
  static constexpr double kMostSeconds = 86'400;

  // Names the conversation to which the request belongs. "" means that it belongs to none. The cache retains only the
  // text of the session's last request, because this text usually begins with the texts of all earlier requests.
  std::string session{};
  // How many seconds the text is retained after the request's end, in (0, kMostSeconds]. 0 releases the session. If
  // unset, the value of the session's retained text applies, or the text is not retained if there is no such value.
  std::optional<double> seconds{};
  // Texts of lower priority are evicted first. A priority is in [1, kMostPriority]. If unset, the value of the
  // session's retained text applies, or kUsualPriority if there is no such value.
  std::optional<std::int64_t> priority{};

  // Names the client. When too many texts are retained, the client with the most texts loses some. The name of a
  // session must contain its owner's name, so that no two owners share a session.
  std::string owner{};

  bool any() const { return !session.empty() || seconds.has_value(); }
};

}  // namespace tessera
