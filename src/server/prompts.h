// Prompts of a request: a text, or several, or ids, or several lists of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/server/api_fields.h"
#include "tessera/server/served_model.h"

namespace tessera {

struct Prompts {
  std::vector<std::vector<TokenId>> ids;
  bool batch = false;  // the request gave a list of prompts, even a list of one
};

// Of `key`: a string, a list of strings, a list of ids or a list of lists of ids; not empty.
ApiResult<Prompts> read_prompts(const ApiFields& fields, std::string_view key, const ServedModel& model);

// 400 where prompts × n requests, or the tokens that they hold, are more than one HTTP request may ask for.
ApiStatus check_fan_out(const std::vector<std::vector<TokenId>>& prompts, int n, const std::string& param);

}  // namespace tessera
