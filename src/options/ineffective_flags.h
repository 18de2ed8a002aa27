// Flags of SGLang and vLLM that change nothing here. Each is accepted. A value that asks for what is done anyway is
// accepted in silence; any other is answered by a warning that says what is done instead.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tessera/options/flags.h"

namespace tessera {

// Which of them were given. Filled when the flags are parsed, and not moved from then on.
struct IneffectiveFlags {
  std::vector<std::string> warnings{};
  std::array<bool, 24> switches{};  // in the order of the table
};

// The help leaves them out.
void add_ineffective_flags(CommandFlags& add, IneffectiveFlags& given);

// Appends a sentence for each that was given and asks for something else than what is done.
void warn_about_ineffective_flags(const IneffectiveFlags& given, std::vector<std::string>& warnings);

}  // namespace tessera
