// What a start says in which compiling or capturing graphs failed: what failed, which flags help, and a report file
// with all that whoever looks into it will ask for.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/report/graph_inventory.h"

namespace tessera::cli {

// The flags that help, with example values, a line each; those that are set already are left out, and a share of memory
// that is set is lowered by 0.01 and 0.05.
std::string failure_advice(const EngineOptions& options);

// For a start that went on without graphs: which runners have none because every one of their sizes failed, why the
// first one did, and the advice. Empty where each runner that wants graphs has some, or has not tried.
std::string explain_dropped_sizes(const GraphInventory& graphs, const EngineOptions& options);

// {"time", "version", "error", "command", "device", "driver", "configuration", "plan"}: the plan has model, pieces,
// sizes, rules, notes and memory, as `tessera explain --format json` shows them. What cannot be told any more has the
// reason in its place. The value of --api-key is left out.
Json failure_report(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments);

// Writes a new file into failure_reports in `cache_dir`, or in the system's folder for temporary files where that is
// "". Its path; kDataLoss where it cannot be written.
Result<std::string> write_failure_report(const Json& report, const std::string& cache_dir);

// The whole text behind an error: the memory that is free now, the advice, where the report is or why there is none,
// and whom to tell. Empty
// where the error came of something else, or the command runs no engine.
std::string explain_failure(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
