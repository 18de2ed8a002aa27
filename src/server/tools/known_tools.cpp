#include "tessera/server/tools/known_tools.h"

namespace tessera {

const Json* KnownTools::find(std::string_view name) const {
  if (tools_ == nullptr) return nullptr;
  for (const Json& tool : tools_->as_array()) {
    const Json* function = tool.find("function");
    const Json* known = function == nullptr ? nullptr : function->find("name");
    if (known != nullptr && known->is_string() && known->as_string() == name) return function;
  }
  return nullptr;
}

const Json* KnownTools::parameters(std::string_view name) const {
  const Json* function = find(name);
  return function == nullptr ? nullptr : function->find("parameters");
}

}  // namespace tessera
