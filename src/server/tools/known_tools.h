// The functions that a request lets the model call.
#pragma once

#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

class KnownTools {
 public:
  // `tools` is the request's list, [{"function": {"name": …, "parameters": …}}, …], and outlives the object. If it is
  // null, every name is known. Entries of another form are skipped.
  explicit KnownTools(const Json& tools) : tools_(tools.is_array() ? &tools : nullptr) {}

  bool knows(std::string_view name) const { return tools_ == nullptr || find(name) != nullptr; }
  // Returns the schema of a function's parameters; null if there is none.
  const Json* parameters(std::string_view name) const;

 private:
  const Json* find(std::string_view name) const;
  const Json* tools_;
};

}  // namespace tessera
