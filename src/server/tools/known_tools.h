// The functions that a request lets the model call.
#pragma once

#include <string_view>

#include "tessera/base/json.h"

namespace tessera {

class KnownTools {
 public:
  // `tools`: the request's, [{"function": {"name": …, "parameters": …}}, …], and outlives this; null: any name is a
  // function's. Entries of another shape are passed over.
  explicit KnownTools(const Json& tools) : tools_(tools.is_array() ? &tools : nullptr) {}

  bool knows(std::string_view name) const { return tools_ == nullptr || find(name) != nullptr; }
  // The schema of a function's parameters; null where there is none.
  const Json* parameters(std::string_view name) const;

 private:
  const Json* find(std::string_view name) const;
  const Json* tools_;
};

}  // namespace tessera
