// Writes a timeline in Chrome's trace event format, which chrome://tracing and https://ui.perfetto.dev display. A
// timeline has processes with tracks, and time spans on the tracks.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/json.h"

namespace tessera::cli {

class ChromeTrace {
 public:
  void name_process(std::int64_t process, const std::string& name);
  void name_track(std::int64_t process, std::int64_t track, const std::string& name);

  struct Span {
    std::string name;
    std::string category;
    std::int64_t process = 0;
    std::int64_t track = 0;
    double begin_ms = 0;
    double end_ms = 0;
    Json args = Json::object();  // shown when the span is clicked
  };
  void add(Span span);

  // Returns {"traceEvents": [...], "displayTimeUnit": "ms", "otherData": about}.
  Json finish(Json about) &&;

 private:
  Json events_ = Json::array();
};

}  // namespace tessera::cli
