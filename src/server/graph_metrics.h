// What /metrics tells of graphs (E7, A3, D7): what there is, how forwards ran, what was padded, who has the memory.
#pragma once

#include "tessera/engine/engine_stats.h"
#include "tessera/server/metric_families.h"

namespace tessera {

// Precondition: stats.graphs is set.
void add_graph_metrics(MetricFamilies& families, const EngineStats& stats);

}  // namespace tessera
