#include "tessera/model/gguf/stored_form.h"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/json_fields.h"
#include "tessera/model/gguf/made_tensors.h"

namespace tessera {

std::optional<StoredDtype> plain_dtype(BlockType type) {
  switch (type) {
    case BlockType::kF32: return StoredDtype::kF32;
    case BlockType::kF16: return StoredDtype::kF16;
    case BlockType::kBF16: return StoredDtype::kBF16;
    case BlockType::kF64: return StoredDtype::kF64;
    case BlockType::kI8: return StoredDtype::kI8;
    case BlockType::kI16: return StoredDtype::kI16;
    case BlockType::kI32: return StoredDtype::kI32;
    case BlockType::kI64: return StoredDtype::kI64;
    default: return std::nullopt;
  }
}

StoredBlocks matrix_of(const GgufTensor& tensor) {
  return {tensor.type, tensor.data.data(), tensor.shape.back(), tensor.factor};
}

StoredTensor same_elements(std::string name, const GgufTensor& tensor, std::vector<std::int64_t> shape) {
  StoredTensor stored{.name = std::move(name), .dtype = StoredDtype::kF32, .shape = std::move(shape), .data = {}};
  if (const std::optional<StoredDtype> plain = plain_dtype(tensor.type); plain && tensor.factor == 1) {
    stored.dtype = *plain;
    stored.data = tensor.data;
  } else {
    stored.made = make_rows({.matrices = {matrix_of(tensor)}}, {});
    if (!plain) stored.blocks = tensor.type;
  }
  return stored;
}

Status check_readable(const std::string& path, const GgufTensor& tensor) {
  if (StoredBlocks::is_readable(tensor.type)) return ok_status();
  return unimplemented(fmt::format("{}: tensor {}: type is {}; accepted: types for the weights of models", path,
                                   clip_text(Json(tensor.name).dump()), block_type_info(tensor.type).name));
}

Status wrong_shape(const std::string& path, const GgufTensor& tensor, const std::string& accepted) {
  return data_loss(fmt::format("{}: tensor {}: shape is {}; accepted: {}", path, clip_text(Json(tensor.name).dump()),
                               shape_text(tensor.shape), accepted));
}

}  // namespace tessera
