// Writes the beginning of a response object, which repeats fields of the request.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/server/fields/api_fields.h"

namespace tessera {

struct ResponseHead {
  std::string id;
  std::string model;
  double temperature = 1;
  double top_p = 1;
  bool parallel = true;
  bool store = true;
  bool background = false;
};

// Returns the unfinished object. Fields that the request leaves out get OpenAI's defaults, or the values in `head`.
std::string make_response_head(const ApiFields& request, const ResponseHead& head);

}  // namespace tessera
