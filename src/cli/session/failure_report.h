// Reports a start that failed while it compiled or captured graphs: what failed, which flags help, and a file with
// facts for an investigation.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"
#include "tessera/cli/options.h"
#include "tessera/engine/stats/graph_inventory.h"

namespace tessera::cli {

// Returns the flags that may help, with example values, one per line. Leaves out flags that have no effect because of
// flags already set. If `of_memory` is false, also leaves out flags that only save memory. If mem_fraction_static is
// set, suggests values that are 0.01 and 0.05 lower.
std::string failure_advice(const EngineOptions& options, bool of_memory = true);

// Explains a start that continued without graphs: which runners have no graphs because all their sizes failed, why the
// first size failed, and the advice. Returns "" if there is no such runner. A runner that has not tried to capture yet
// does not count.
std::string explain_dropped_sizes(const GraphInventory& graphs, const EngineOptions& options);

// Returns {"time", "version", "error", "command", "device", "driver", "configuration", "plan"}. The plan has model,
// pieces, sizes, rules, notes and memory, as `tessera explain --format json` shows them. If a fact is no longer
// available, the report has the reason instead. Keys and passwords are left out.
Json failure_report(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments);

// Writes a new file to the folder failure_reports in `cache_dir`, or in the system's temporary folder if `cache_dir` is
// "". Returns the file's path, or kDataLoss if the file cannot be written.
Result<std::string> write_failure_report(const Json& report, const std::string& cache_dir);

// Returns the whole text to print after an error: the free memory, the advice, the report's path (or why there is
// none), and whom to tell. If the error says that something is unsupported or wrong, leaves out the free memory and the
// advice to use less memory. Returns "" if the error did not occur while graphs were compiled or captured, or if the
// command runs no engine.
std::string explain_failure(const Status& error, const CommandLine& line, const std::vector<std::string>& arguments);

}  // namespace tessera::cli
