// The known formats of tool calls. tool_call_parser.h shows the form of each.
#pragma once

#include <memory>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/server/tools/call_format.h"
#include "tessera/server/tools/known_tools.h"

namespace tessera {

// Makes the format with a name from tool_call_parser_names(). Error: invalid_argument for any other name.
Result<std::unique_ptr<CallFormat>> make_call_format(std::string_view name, KnownTools tools);

std::unique_ptr<CallFormat> make_hermes_format(KnownTools tools);
std::unique_ptr<CallFormat> make_generic_format(KnownTools tools);
std::unique_ptr<CallFormat> make_llama3_format(KnownTools tools);
std::unique_ptr<CallFormat> make_mistral_format(KnownTools tools);
std::unique_ptr<CallFormat> make_deepseek_format(KnownTools tools);
std::unique_ptr<CallFormat> make_dsml_format(KnownTools tools);
std::unique_ptr<CallFormat> make_qwen3_coder_format(KnownTools tools);
std::unique_ptr<CallFormat> make_glm_format(KnownTools tools);
std::unique_ptr<CallFormat> make_harmony_format(KnownTools tools);

}  // namespace tessera
