// Chooses the type of each tensor in a GGUF file. The choices are those of llama.cpp's llama-quantize.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/model/quantise/gguf_content.h"
#include "tessera/ops/quantised/block_types.h"

namespace tessera {

struct GgufFileType {
  std::string_view name;  // "Q4_K_M"
  std::uint32_t id;       // value of general.file_type
  BlockType base;         // the type of most matrices
};

// Returns the type called `name`, ignoring case; null if the name is unknown.
const GgufFileType* find_file_type(std::string_view name);
std::span<const GgufFileType> gguf_file_types();

struct ChosenTypes {
  std::vector<BlockType> types;  // one for each tensor, in the same order
  // Messages about tensors that get another type, because their row length is not a multiple of the wanted type's block
  // size.
  std::vector<std::string> notes;
};
// `importance` says whether there is an importance matrix.
ChosenTypes choose_types(const GgufContent& content, const GgufFileType& type, bool importance = false);

}  // namespace tessera
