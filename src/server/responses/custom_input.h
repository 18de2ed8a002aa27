// The input of a custom tool is free text, but models call functions with JSON arguments. The model is therefore shown
// a function with one string parameter. CustomInput takes the text out of the call's arguments, {"input": "…"}, as they
// arrive.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/base/json.h"
#include "tessera/server/fields/json_scanner.h"

namespace tessera {

// Returns the schema of the function's parameters.
Json custom_parameters();
// Returns the call's arguments for an input.
Json custom_arguments(std::string input);

class CustomInput {
 public:
  // Takes a part of the arguments and returns the text that it adds to the input.
  std::string push(std::string_view arguments);
  // Call it at the end of the arguments. Returns "" if push() has found the input. Otherwise the arguments have another
  // form, and all of them are returned as the input.
  std::string finish();
  // Returns whether the arguments so far are a whole call. They are not if their object has begun and has not ended.
  // Call it before finish().
  bool is_whole() const { return scanner_.done() || (!found_ && (broken_ || all_.empty())); }

 private:
  void take_value(char c, std::string& out);
  void take_escape(char c, std::string& out);
  void take_unit(std::string& out);
  void end_pair(std::string& out);

  JsonScanner scanner_;
  std::string all_;  // the arguments, until the input has begun
  std::string key_;
  bool broken_ = false;    // the arguments are not an object
  bool in_input_ = false;  // inside the input's string
  bool found_ = false;     // the input has begun
  bool after_key_ = false;
  std::string escape_{};            // the beginning of an escape that is not complete
  std::optional<unsigned> high_{};  // the first half of a surrogate pair whose second half has not come
};

}  // namespace tessera
