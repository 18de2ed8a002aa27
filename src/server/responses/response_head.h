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
  double presence_penalty = 0;
  double frequency_penalty = 0;
  bool parallel = true;
  bool store = true;
  bool background = false;
};

// Returns the unfinished object. Its members come from `head`, from the request's fields and, for fields that the
// request leaves out, from OpenAI's defaults.
std::string make_response_head(const ApiFields& request, const ResponseHead& head);

}  // namespace tessera
