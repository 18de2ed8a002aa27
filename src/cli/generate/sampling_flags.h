// The flags of `generate` and `chat` that say how tokens are sampled and when a text ends.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/cli/options.h"
#include "tessera/options/flags.h"

namespace tessera::cli {

// Adds the flags. `title` is their heading in the help. The heading also says how tokens are sampled if none of the
// flags is given.
void add_sampling_flags(CommandFlags& add, const std::string& title, GivenSampling& given);

// Returns greedy sampling unless a flag says otherwise. A flag that only affects sampling implies temperature 1 if
// --temperature is not given.
SamplingParams sampling_params(const GivenSampling& given);
StopConditions stop_conditions(const GivenSampling& given);
// Writes the flags' values into the body of a request to a server.
void set_request_fields(const GivenSampling& given, Json& body);

}  // namespace tessera::cli
