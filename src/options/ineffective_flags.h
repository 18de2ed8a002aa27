// Flags of SGLang and vLLM that change nothing here. All are accepted. If the value asks for what happens anyway, there
// is no warning. Otherwise a warning says what happens instead.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tessera/options/flags.h"

namespace tessera {

// Records which ineffective flags were given. Parsing fills this object. The object must not move after
// add_ineffective_flags(), because the parser keeps references to the object.
struct IneffectiveFlags {
  std::vector<std::string> warnings{};
  std::array<bool, 24> switches{};  // whether each switch of kIneffective was given, in the table's order
};

// Adds the flags. The help omits them.
void add_ineffective_flags(CommandFlags& add, IneffectiveFlags& given);

// Appends a warning for each given flag that asks for behaviour that Tessera does not have.
void warn_about_ineffective_flags(const IneffectiveFlags& given, std::vector<std::string>& warnings);

}  // namespace tessera
