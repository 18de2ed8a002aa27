// Encodes the answers that ranks on other nodes send to node 0. Messages from node 0 are not encoded here, because
// RankChannel already holds them as bytes (net/message.h), and these bytes are sent unchanged. Between ranks of the
// same process, RankChannel carries messages and answers without this encoding.
//
// Node 0 sends each message once to each node, and a channel in that node's process passes it to the node's ranks. The
// answer of each rank returns in a separate frame.
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
