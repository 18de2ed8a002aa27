#include "tessera/model/family.h"

#include <algorithm>
#include <vector>

#include "tessera/model/families/llama.h"
#include "tessera/model/families/olmo2.h"
#include "tessera/model/families/phi3.h"

namespace tessera {

std::span<const ModelFamily> model_families() {
  static const std::vector<ModelFamily> families{llama_family(), mistral_family(), qwen2_family(),
                                                 qwen3_family(), olmo2_family(),   phi3_family()};
  return families;
}

const ModelFamily* find_family(std::string_view architecture) {
  const std::span<const ModelFamily> families = model_families();
  const auto found = std::ranges::find(families, architecture, &ModelFamily::architecture);
  return found == families.end() ? nullptr : &*found;
}

std::string family_names() {
  std::string names;
  for (const ModelFamily& family : model_families()) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

}  // namespace tessera
