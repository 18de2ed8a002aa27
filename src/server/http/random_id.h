// Makes random ids for answers, calls and requests.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns `prefix` followed by 32 random hexadecimal digits.
std::string make_id(std::string_view prefix);

}  // namespace tessera
