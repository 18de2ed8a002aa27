// The values of "format" that are held to.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/schema/text_set.h"

namespace tessera::schema {

// The strings of a format: date, time, date-time, duration (RFC 3339), ipv4, ipv6, uuid, email, hostname, uri,
// uri-reference and their international forms (of which ASCII is generated), json-pointer, relative-json-pointer,
// uri-template, and regex (of which plain ones are generated: characters, classes and groups without nesting).
// Nothing for a name that the standard does not define ("int64", "password"): by the standard it is an annotation.
Result<std::optional<TextTerm>> format_term(std::string_view name);

}  // namespace tessera::schema
