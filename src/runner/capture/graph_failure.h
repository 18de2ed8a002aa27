// Errors of a start that came of compiling or capturing graphs: their message has one of these contexts, so that
// whoever reports them can say what helps.
#pragma once

#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::string_view kCompileContext = "compiling graphs";
inline constexpr std::string_view kCaptureContext = "capturing graphs";

inline bool is_graph_failure(const Status& status) {
  const auto has = [&](std::string_view context) {
    return status.message().find(std::string(context) + ": ") != std::string::npos;
  };
  return !status.ok() && (has(kCompileContext) || has(kCaptureContext));
}

}  // namespace tessera
