#include "tessera/server/work/part_groups.h"

#include <map>
#include <string>

namespace tessera {
namespace {

std::string looks_of(const Part& part) {
  std::string looks(part_kind_name(part.kind));
  for (const ir::Node& node : part.graph.nodes) looks += ' ' + node.op;
  for (const ir::ValueId output : part.graph.outputs) looks += ',' + part.graph.value(output).type.to_string();
  return looks;
}

// `looks` has a number for each part. Equal parts have equal numbers. Returns how many times the sequence of `length`
// parts that begins with part `first` occurs in a row from there on. The result is at least 1.
std::size_t count_repeats(std::span<const int> looks, std::size_t first, std::size_t length) {
  std::size_t same = 0;
  while (first + length + same < looks.size() && looks[first + same] == looks[first + length + same]) ++same;
  return 1 + same / length;
}

}  // namespace

std::vector<PartGroup> group_parts(std::span<const Part> parts) {
  std::map<std::string, int> known;
  std::vector<int> looks;
  for (const Part& part : parts)
    looks.push_back(known.try_emplace(looks_of(part), static_cast<int>(known.size())).first->second);

  std::vector<PartGroup> groups;
  for (std::size_t at = 0; at < looks.size();) {
    PartGroup best{.first = at};
    for (std::size_t length = 1; at + 2 * length <= looks.size(); ++length) {
      const std::size_t repeats = count_repeats(looks, at, length);
      if (repeats > 1 && repeats * length > best.repeats * best.length) best = {at, length, repeats};
    }
    if (best.repeats == 1 && !groups.empty() && groups.back().repeats == 1) {
      ++groups.back().length;
    } else {
      groups.push_back(best);
    }
    at += best.repeats * best.length;
  }
  return groups;
}

}  // namespace tessera
