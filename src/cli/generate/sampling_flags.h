// The flags that say how tokens are chosen and when a text ends: of `generate` and `chat`.
#pragma once

#include <string>

#include "tessera/base/json.h"
#include "tessera/cli/options.h"
#include "tessera/options/flags.h"

namespace tessera::cli {

// `title` heads them in the help and says what holds where none is given.
void add_sampling_flags(CommandFlags& add, const std::string& title, GivenSampling& given);

// Greedy unless a flag says otherwise; a flag that only sampling heeds, without --temperature, samples at 1.
SamplingParams sampling_params(const GivenSampling& given);
StopConditions stop_conditions(const GivenSampling& given);
// Sets the flags' values as fields of a request to a server.
void set_request_fields(const GivenSampling& given, Json& body);

}  // namespace tessera::cli
