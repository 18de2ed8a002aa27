#include "tessera/server/anthropic/thinking_signature.h"

#include "tessera/base/base64.h"

namespace tessera {
namespace {

constexpr std::string_view kMark = "tessera1.";

}  // namespace

std::string signature_of_thinking(std::string_view hidden) { return std::string(kMark) + to_base64(hidden); }

std::optional<std::string> thinking_of_signature(std::string_view signature) {
  if (!signature.starts_with(kMark)) return "";
  return from_base64(signature.substr(kMark.size()));
}

}  // namespace tessera
