// Catches: crashes and endless work when a form is read; parts that reach beyond the body or overlap; a part whose
// content contains the boundary.
#include "tessera/server/http/bodies/multipart.h"

#include <algorithm>

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = fuzz::as_text(data, size);
  // The first line is the Content-Type.
  const std::size_t line = std::min(input.find('\n'), input.size());
  const std::string_view type = input.substr(0, line);
  const std::string_view body = input.substr(std::min(line + 1, input.size()));

  (void)is_form_type(type);
  const Result<std::vector<FormPart>> parts = read_form(type, body);
  if (!parts.ok()) {
    fuzz::require(!parts.status().message().empty(), "an error says why");
    return 0;
  }
  fuzz::require(parts->size() <= 64, "a form has a limited number of parts");
  const char* behind = body.data();
  for (const FormPart& part : *parts) {
    fuzz::require(!part.name.empty(), "every part has a name");
    fuzz::require(part.content.data() >= behind, "parts follow one another");
    behind = part.content.data() + part.content.size();
    fuzz::require(behind <= body.data() + body.size(), "a part is within the body");
  }
  return 0;
}
