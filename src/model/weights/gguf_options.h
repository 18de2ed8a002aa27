// What a user adds to a model in GGUF files: the file of a vision tower, and values that replace the model's metadata.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// A value that replaces a value of the model's metadata, or that is added to the metadata.
struct GgufOverride {
  std::string key;
  std::variant<std::int64_t, double, bool, std::string> value;

  // Parses "KEY=TYPE:VALUE" as llama.cpp spells it. TYPE is int, float, bool or str. Returns invalid_argument for
  // another form, with what is accepted.
  static Result<GgufOverride> parse(std::string_view text);
};

struct GgufOptions {
  std::string projector = {};  // the file of the vision tower (gguf_projector.h); "": none, or not used
  std::vector<GgufOverride> overrides = {};
};

}  // namespace tessera
