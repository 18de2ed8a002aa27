#include "tessera/server/responses/response_include.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/server/fields/api_fields.h"

namespace tessera {

ApiStatus check_included(std::span<const std::string> names, std::string_view place) {
  constexpr std::string_view kKnown[] = {"reasoning.encrypted_content",
                                         "message.output_text.logprobs",
                                         "message.input_image.image_url",
                                         "file_search_call.results",
                                         "web_search_call.results",
                                         "web_search_call.action.sources",
                                         "computer_call_output.output.image_url",
                                         "code_interpreter_call.outputs"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::ranges::find(kKnown, names[i]) != std::end(kKnown)) continue;
    const std::string param = fmt::format("include[{}]", i);
    return invalid_field(param, fmt::format("{} \"{}\" is \"{}\"; accepted: a name that OpenAI's protocol has, such as "
                                            "\"reasoning.encrypted_content\" or \"message.output_text.logprobs\"",
                                            place, param, clip_text(names[i])));
  }
  return api_ok();
}

}  // namespace tessera
