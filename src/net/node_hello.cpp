#include "tessera/net/node_hello.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/net/message.h"

namespace tessera {
namespace {

constexpr std::uint32_t kKind = 1;

void pack_text(const std::string& text, MessageWriter& to) { to.list(std::span(text)); }

Result<std::string> unpack_text(std::string_view field, MessageReader& from) {
  const std::span<const char> text = TRY(from.list<char>(field));
  return std::string(text.begin(), text.end());
}

Status differs(int node, std::string_view what, std::string_view leaders, std::string_view others) {
  return invalid_argument(fmt::format("{}: {} on node 0 and {} on node {}; all nodes take the same", what,
                                      leaders.empty() ? "not set" : leaders, others.empty() ? "not set" : others,
                                      node));
}

}  // namespace

std::vector<std::byte> pack_hello(const NodeHello& hello) {
  std::vector<std::byte> bytes;
  MessageWriter to(bytes, kKind, 0);
  to.word(hello.protocol);
  to.word(hello.nodes);
  to.word(hello.node);
  pack_text(hello.version, to);
  pack_text(hello.model, to);
  to.word(std::ssize(hello.options));
  for (const NamedValue& option : hello.options) {
    pack_text(option.name, to);
    pack_text(option.value, to);
  }
  to.finish();
  return bytes;
}

Result<NodeHello> unpack_hello(std::span<const std::byte> bytes) {
  MessageReader from = TRY(MessageReader::open(bytes));
  NodeHello hello{.protocol = TRY(from.word("protocol"))};
  if (hello.protocol != kNodeProtocol) return hello;
  hello.nodes = static_cast<int>(TRY(from.choice("nodes", INT32_MAX)));
  hello.node = static_cast<int>(TRY(from.choice("node", INT32_MAX)));
  hello.version = TRY(unpack_text("version", from));
  hello.model = TRY(unpack_text("model", from));
  const std::int64_t options = TRY(from.choice("options", INT32_MAX));
  for (std::int64_t i = 0; i < options; ++i) {
    std::string name = TRY(unpack_text("option", from));
    std::string value = TRY(unpack_text("option", from));
    hello.options.push_back({.name = std::move(name), .value = std::move(value)});
  }
  TRY(from.finish());
  return hello;
}

Status check_hello(const NodeHello& leader, const NodeHello& other) {
  if (other.protocol != leader.protocol)
    return invalid_argument(
        fmt::format("the protocol between nodes is {} on node 0 and {} on another; all nodes run "
                    "the same version of the program",
                    leader.protocol, other.protocol));
  if (other.version != leader.version)
    return differs(other.node, "the program's version", leader.version, other.version);
  if (other.nodes != leader.nodes)
    return differs(other.node, "nnodes", std::to_string(leader.nodes), std::to_string(other.nodes));
  if (other.node < 1 || other.node >= leader.nodes)
    return invalid_argument(
        fmt::format("node_rank: {} is not accepted; 1 to {} follow node 0", other.node, leader.nodes - 1));
  for (std::size_t i = 0; i < std::max(leader.options.size(), other.options.size()); ++i) {
    if (i >= leader.options.size() || i >= other.options.size() || leader.options[i].name != other.options[i].name)
      return invalid_argument("the nodes have different options; run the same version of the program on all nodes");
    if (leader.options[i].value != other.options[i].value)
      return differs(other.node, leader.options[i].name, leader.options[i].value, other.options[i].value);
  }
  if (other.model != leader.model)
    return invalid_argument(fmt::format(
        "node {} has another model than node 0: config.json, or names, types or shapes of its weights differ "
        "(hash {} on node 0, {} on node {})",
        other.node, leader.model, other.model, other.node));
  return ok_status();
}

}  // namespace tessera
