// The collector to which the server sends traces.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

struct TraceOptions {
  std::string endpoint{};  // URL of a collector that takes OTLP over HTTP; "": no traces
  std::string service = "tessera";
  // Headers that are sent with each request to the collector, for example one that holds an access key.
  std::vector<std::pair<std::string, std::string>> headers{};
};

// Returns the whole URL of an endpoint: "http://host:4318" becomes "http://host:4318/v1/traces". Errors: the text is
// not an http or https URL.
Result<std::string> trace_url(const std::string& endpoint);

}  // namespace tessera
