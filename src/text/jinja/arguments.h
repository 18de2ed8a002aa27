// Matches the arguments of a call to the parameters of a built-in function.
//
//   const Arguments a = TRY(Arguments::bind("replace", call, {"old", "new", "count"}, 2));
//   const std::string& old = TRY(a.string(0));
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// Charges `budget` for the length of every argument that is a string, because the call reads or copies these strings
// whole.
Status spend_texts(const CallArguments& call, Budget& budget);

// The arguments of one call, in the order of the function's parameters. Borrows the call's values.
class Arguments {
 public:
  // Matches the call's arguments to `parameters`, of which the first `required` must be given. Errors are worded like
  // Python's TypeErrors.
  static Result<Arguments> bind(std::string_view function, const CallArguments& call,
                                std::initializer_list<std::string_view> parameters, std::size_t required = 0);

  bool given(std::size_t i) const { return values_[i] != nullptr; }
  // Returns argument i. Precondition: given(i).
  const Value& operator[](std::size_t i) const { return *values_[i]; }

  // Each of these functions returns argument i, which must have the type in the function's name. The error names the
  // function, the parameter, the argument's type and what is accepted.
  Result<std::string> string(std::size_t i) const;
  Result<std::string> string_or(std::size_t i, std::string_view otherwise) const;  // `otherwise` if none is given
  Result<std::int64_t> integer(std::size_t i) const;
  Result<std::int64_t> integer_or(std::size_t i, std::int64_t otherwise) const;  // `otherwise` if none is given
  // Returns whether argument i, which may have any type, counts as true; `otherwise` if none is given.
  bool truthy_or(std::size_t i, bool otherwise) const;

 private:
  Status wrong_type(std::size_t i, std::string_view accepted) const;
  std::string function_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace tessera::jinja
