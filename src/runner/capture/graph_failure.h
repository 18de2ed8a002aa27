// Names the contexts (Status::with_context) of start-up errors from compiling or capturing graphs. The message of such
// an error contains one of these texts, so that the code that reports the error can suggest a remedy.
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
