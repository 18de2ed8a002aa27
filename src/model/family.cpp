#include "tessera/model/family.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/nearest.h"
#include "tessera/model/families/deepseek.h"
#include "tessera/model/families/gemma.h"
#include "tessera/model/families/gemma4.h"
#include "tessera/model/families/glm4_moe.h"
#include "tessera/model/families/glm4_moe_lite.h"
#include "tessera/model/families/gpt_oss.h"
#include "tessera/model/families/llama.h"
#include "tessera/model/families/mixtral.h"
#include "tessera/model/families/olmo2.h"
#include "tessera/model/families/phi3.h"
#include "tessera/model/families/qwen3_moe.h"
#include "tessera/model/families/qwen3_next.h"
#include "tessera/model/families/qwen_vl.h"

namespace tessera {

Status FamilyRegistry::add(ModelFamily family) {
  if (find(family.architecture) != nullptr)
    return invalid_argument(fmt::format("a model family named {} is registered already", family.architecture));
  families_.push_back(std::move(family));
  return ok_status();
}

const ModelFamily* FamilyRegistry::find(std::string_view architecture) const {
  const auto found = std::ranges::find(families_, architecture, &ModelFamily::architecture);
  return found == families_.end() ? nullptr : &*found;
}

std::string FamilyRegistry::names() const {
  std::string names;
  for (const ModelFamily& family : families_) {
    if (!names.empty()) names += ", ";
    names += family.architecture;
  }
  return names;
}

std::vector<std::string> FamilyRegistry::nearest(std::string_view architecture) const {
  std::vector<std::string_view> known;
  for (const ModelFamily& family : families_) known.push_back(family.architecture);
  return nearest_names(architecture, known, 1);
}

const FamilyRegistry& built_in_families() {
  static const FamilyRegistry registry = [] {
    FamilyRegistry families;
    for (ModelFamily (*make)() : {llama_family,
                                  mistral_family,
                                  ministral3_family,
                                  qwen2_family,
                                  qwen3_family,
                                  qwen3_classifier_family,
                                  qwen2_vl_family,
                                  qwen2_5_vl_family,
                                  qwen3_vl_family,
                                  olmo2_family,
                                  phi3_family,
                                  qwen3_moe_family,
                                  mixtral_family,
                                  glm4_moe_family,
                                  gemma2_family,
                                  gemma3_family,
                                  gemma3_nested_family,
                                  gemma4_family,
                                  gemma4_nested_family,
                                  qwen3_next_family,
                                  qwen3_5_text_family,
                                  qwen3_5_family,
                                  qwen3_5_moe_text_family,
                                  qwen3_5_moe_family,
                                  qwen3_vl_moe_family,
                                  deepseek_v2_family,
                                  deepseek_v3_family,
                                  glm4_moe_lite_family,
                                  gpt_oss_family})
      (void)families.add(make());
    return families;
  }();
  return registry;
}

}  // namespace tessera
