#include "tessera/model/rename_tensors.h"

#include <variant>

namespace tessera {

void rename_tensors(const std::function<std::string(const std::string&)>& name, WeightPart& part) {
  part.tensor = name(part.tensor);
  for (std::string& beside : part.beside) beside = name(beside);
  if (auto* scaled = std::get_if<ScaledStorage>(&part.storage)) scaled->scale = name(scaled->scale);
  if (auto* nibbles = std::get_if<NibbleStorage>(&part.storage); nibbles != nullptr && !nibbles->shape.empty())
    nibbles->shape = name(nibbles->shape);
}

void rename_tensors(const std::function<std::string(const std::string&)>& name, std::vector<WeightSpec>& weights) {
  for (WeightSpec& spec : weights)
    for (std::vector<WeightPart>* parts : {&spec.parts, &spec.elsewhere})
      for (WeightPart& part : *parts) rename_tensors(name, part);
}

}  // namespace tessera
