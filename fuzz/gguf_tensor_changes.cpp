#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gguf_changes.h"
#include "gguf_names.h"

namespace tessera::fuzz {
namespace {

constexpr std::size_t kMostElements = 4096;  // in one tensor

std::string some_tensor(Random& random) {
  if (below(3, random) == 0) return one_of(kWholeTensors, random);
  return "blk." + std::to_string(below(2, random)) + "." + one_of(kTensors, random);
}

void mutate_shape(GgufLists::Tensor& tensor, Random& random) {
  std::vector<std::int64_t> shape = tensor.shape;
  const BlockTypeInfo& type = below(3, random) == 0 ? one_of(kBlockTypes, random) : block_type_info(tensor.type);
  switch (below(4, random)) {
    case 0: std::ranges::reverse(shape); break;
    case 1: shape.insert(shape.begin(), 1); break;
    case 2:
      if (shape.size() > 1) shape.erase(shape.begin());
      break;
    default: one_of(shape, random) = static_cast<std::int64_t>(1 + below(9, random));
  }
  shape.back() = (shape.back() + type.elements - 1) / type.elements * type.elements;
  std::int64_t elements = 1;
  for (const std::int64_t size : shape) elements = std::min<std::int64_t>(elements * size, kMostElements + 1);
  if (elements > static_cast<std::int64_t>(kMostElements) || shape.size() > GgufFile::kMaxRank) return;
  tensor.type = type.type;
  tensor.shape = std::move(shape);
  tensor.data.resize(static_cast<std::size_t>(elements / type.elements * type.bytes), '\x3c');
}

}  // namespace

void mutate_tensors(GgufLists& file, Random& random) {
  GgufLists::Tensor& tensor = one_of(file.tensors, random);
  switch (below(6, random)) {
    case 0: tensor.name = some_tensor(random); break;
    case 1: mutate_text(tensor.name); break;
    case 2: file.tensors.erase(file.tensors.begin() + (&tensor - file.tensors.data())); break;
    case 3: {
      GgufLists::Tensor copy = tensor;
      copy.name = some_tensor(random);
      file.tensors.push_back(std::move(copy));
      break;
    }
    case 4: {
      const std::size_t size = tensor.data.size();
      mutate_bytes(tensor.data, size);
      tensor.data.resize(size);
      break;
    }
    default: mutate_shape(tensor, random);
  }
}

}  // namespace tessera::fuzz
