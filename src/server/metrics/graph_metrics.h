// Adds the metrics of CUDA graphs to a scrape: captured sizes, forwards by runner and reason, padding, and memory by
// use.
#pragma once

#include "tessera/engine/stats/engine_stats.h"
#include "tessera/server/metrics/metric_families.h"

namespace tessera {

// Adds the metrics of graphs. Precondition: stats.graphs is set.
void add_graph_metrics(MetricFamilies& families, const EngineStats& stats);

}  // namespace tessera
