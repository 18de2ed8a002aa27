// Finds the files that contain the weights of a model folder. Tries these possibilities, in this order:
//   model.safetensors                     one file
//   model.safetensors.index.json          shards by its weight_map
//   model-00001-of-00003.safetensors …    shards without an index
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/status.h"

namespace tessera {

inline constexpr std::string_view kWeightFile = "model.safetensors";
inline constexpr std::string_view kWeightIndex = "model.safetensors.index.json";

// The numbers in a shard's file name: {2, 5} for "model-00002-of-00005.safetensors".
struct ShardNumber {
  int index = 0;
  int count = 0;
};
std::optional<ShardNumber> shard_number(std::string_view name);

// Reads the weight_map of the index file `path`. The map gives for each tensor the name of a shard, which is a
// .safetensors file in the same folder. Returns not_found if the file does not exist; invalid_argument if its content
// is wrong.
Result<std::map<std::string, std::string>> read_weight_map(const std::string& path);

}  // namespace tessera
