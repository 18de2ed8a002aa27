// Carries orders and answers between the nodes of a group as frames, as RankChannel does within a process.
//
// Node 0 sends each message once to each node, where a channel of that process gives it to the node's ranks. Every
// rank's answer returns separately.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/runner/ranks/rank_channel.h"

namespace tessera {

struct WiredAnswer {
  int rank = 0;
  std::uint64_t number = 0;  // number of the answered message
  RankAnswer answer{};
};

std::vector<std::byte> pack_answer(int rank, std::uint64_t number, const RankAnswer& answer);
Result<WiredAnswer> unpack_answer(std::span<const std::byte> bytes);

}  // namespace tessera
