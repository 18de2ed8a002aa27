// The first message between the processes of one engine, and the check that certain values are equal on all nodes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// The version of the frames between nodes and of the frames' contents.
inline constexpr std::int64_t kNodeProtocol = 5;

struct NamedValue {
  std::string name;
  std::string value;
};

struct NodeHello {
  std::int64_t protocol = kNodeProtocol;
  int nodes = 2;
  int node = 0;                       // number of the node; node 0 leads
  std::string version{};              // version of the program
  std::string model{};                // hash of the model
  std::vector<NamedValue> options{};  // values that must be equal on all nodes, in the same order
};

std::vector<std::byte> pack_hello(const NodeHello& hello);
// Reads a hello. Returns kDataLoss if it is malformed. If the hello's protocol version is not kNodeProtocol, reads only
// the version.
Result<NodeHello> unpack_hello(std::span<const std::byte> bytes);

// Checks that `other` can follow `leader`. Otherwise returns kInvalidArgument. The message names the first value that
// differs, and shows it for both nodes.
Status check_hello(const NodeHello& leader, const NodeHello& other);

}  // namespace tessera
