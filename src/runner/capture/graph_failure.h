// The texts that Status::with_context adds to an error if compiling or capturing graphs fails during the start. The
// code that reports the error searches its message for these texts. If it finds one, it suggests a remedy.
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
