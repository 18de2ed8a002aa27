// Reads bodies of the type multipart/form-data (RFC 7578), in which clients upload files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/status.h"

namespace tessera {

// One part of a form. The texts borrow from the body.
struct FormPart {
  std::string name{};          // name of the field, without its quotes
  std::string filename{};      // "": the part is not a file
  std::string_view content{};  // as sent
};

// Returns whether a Content-Type is multipart/form-data, with or without parameters.
bool is_form_type(std::string_view content_type);

// Returns the parts in order. `content_type` is the header with the boundary. Ignores bytes before the first boundary.
// Errors name what is malformed: a header without a boundary, a body that does not contain the boundary or ends before
// the last boundary, a part without a name, or more than 64 parts.
Result<std::vector<FormPart>> read_form(std::string_view content_type, std::string_view body);

}  // namespace tessera
