#include "tessera/model/gguf/tensor_factors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/model/gguf/stored_form.h"

namespace tessera {
namespace {

constexpr std::string_view kMatrix = ".weight";
constexpr std::string_view kFactor = ".scale";
constexpr std::string_view kInputScale = ".input_scale";

Result<std::vector<float>> read_factors(const GgufModel& model, const GgufTensor& tensor, const GgufTensor& matrix) {
  const std::size_t count = tensor.data.size() / sizeof(float);
  const bool one_each = matrix.shape.size() == 3 && static_cast<std::int64_t>(count) == matrix.shape[0];
  if (tensor.type != BlockType::kF32 || (count != 1 && !one_each))
    return wrong_shape(model.path(), tensor, "one number of F32, or one for each expert of " + matrix.name);
  std::vector<float> factors(count);
  std::memcpy(factors.data(), tensor.data.data(), tensor.data.size());
  if (std::ranges::all_of(factors, [](float factor) { return std::isfinite(factor); })) return factors;
  return data_loss(model.path() + ": tensor " + tensor.name + " has infinities or NaN; accepted: finite numbers");
}

}  // namespace

Result<TensorFactors> TensorFactors::read(const GgufModel& model, std::span<const TensorNameRule> rules) {
  TensorFactors result;
  std::map<std::string_view, const GgufTensor*> matrices;
  for (const GgufFile& file : model.files())
    for (const GgufTensor& tensor : file.tensors())
      if (tensor.name.ends_with(kMatrix)) matrices.emplace(tensor.name, &tensor);
  for (const GgufFile& file : model.files()) {
    for (const GgufTensor& tensor : file.tensors()) {
      const bool of_input = tensor.name.ends_with(kInputScale);
      if (!of_input && !tensor.name.ends_with(kFactor)) continue;
      if (find_name_rule(parse_tensor_name(tensor.name), rules) != nullptr) continue;
      const std::size_t stem = tensor.name.size() - (of_input ? kInputScale : kFactor).size();
      const std::string name = tensor.name.substr(0, stem) + std::string(kMatrix);
      const auto matrix = matrices.find(name);
      if (matrix == matrices.end()) continue;
      result.beside_.emplace(tensor.name);
      if (!of_input) result.factors_.emplace(name, TRY(read_factors(model, tensor, *matrix->second)));
    }
  }
  return result;
}

std::span<const float> TensorFactors::of(const std::string& tensor) const {
  const auto found = factors_.find(tensor);
  return found != factors_.end() ? std::span<const float>(found->second) : std::span<const float>();
}

}  // namespace tessera
