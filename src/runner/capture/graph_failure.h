// The texts that Status::with_context adds to start-up errors from compiling or capturing graphs. The code that reports
// an error searches its message for these texts, and then suggests a remedy.
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
