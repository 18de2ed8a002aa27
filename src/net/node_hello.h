// What the processes of one engine tell each other before anything else, and what has to be equal in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// Of the frames between nodes and of all that is in them.
inline constexpr std::int64_t kNodeProtocol = 3;

struct NamedValue {
  std::string name;
  std::string value;
};

struct NodeHello {
  std::int64_t protocol = kNodeProtocol;
  int nodes = 2;
  int node = 0;                       // of them; 0 leads
  std::string version{};              // of the program
  std::string model{};                // a hash of what the model is
  std::vector<NamedValue> options{};  // that all nodes have to agree on, in the same order
};

std::vector<std::byte> pack_hello(const NodeHello& hello);
// kDataLoss where it cannot be read. Of another protocol only that number is read.
Result<NodeHello> unpack_hello(std::span<const std::byte> bytes);

// Whether `other` can follow `leader`. kInvalidArgument names the first thing that differs, with both values.
Status check_hello(const NodeHello& leader, const NodeHello& other);

}  // namespace tessera
