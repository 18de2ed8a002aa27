// Joins the stages of a pipeline. If an error ends the group of one stage's ranks, the groups of all stages end.
// communicator.cpp uses this file.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "tessera/base/rank_layout.h"
#include "tessera/comm/group.h"
#include "tessera/comm/pipeline.h"

namespace tessera {

// The groups of this process's stages, and the pipeline between all stages. A fault of one rank ends all groups and the
// pipeline.
struct Communicator::Stages {
  Stages(const RankLayout& layout, std::chrono::milliseconds limit, std::shared_ptr<NodeGroup> nodes_in)
      : nodes(std::move(nodes_in)), pipeline(layout, limit, nodes) {
    for (int stage = 0; stage < layout.pp_size; ++stage)
      if (pipeline.is_here(layout.rank_at(stage, 0))) groups[stage] = std::make_shared<Group>(layout.tp_size, nullptr);
  }
  // Ends the groups of all stages and the pipeline. Returns false if all of them had already ended.
  bool end_once(const Status& why) {
    bool ended = false;
    for (const auto& [stage, group] : groups) ended |= group->end_once(why);
    pipeline.end(why);
    return ended;
  }
  void begin(std::uint64_t epoch) {
    pipeline.begin(epoch);
    for (const auto& [stage, group] : groups) group->begin(epoch);
  }
  static void take_frames_of(NodeGroup& from, const std::weak_ptr<Stages>& stages);

  const std::shared_ptr<NodeGroup> nodes;  // null if all ranks are in this process
  Pipeline pipeline;
  std::map<int, std::shared_ptr<Group>> groups;  // the key is the stage
};

}  // namespace tessera
