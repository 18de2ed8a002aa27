// Reads OpenTelemetry's own environment variables, which say how spans are sent.
#pragma once

#include "tessera/base/status.h"
#include "tessera/cli/environment.h"
#include "tessera/server/trace/trace_options.h"

namespace tessera::cli {

// Copies to `traces` each of the following variables that is set:
//   OTEL_SERVICE_NAME                   the service's name in traces
//   OTEL_EXPORTER_OTLP_TRACES_HEADERS   headers for the collector, "NAME=VALUE,…" with escapes as in URLs ("%20")
//   OTEL_EXPORTER_OTLP_HEADERS          headers as above, if the variable above is not set
// Errors name the variable, and never show a value, which may be a key.
Status take_trace_environment(const Environment& get, TraceOptions& traces);

}  // namespace tessera::cli
