// Defines which strings belong to a "format", for those formats that grammars enforce.
#pragma once

#include <optional>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/engine/schema/text_set.h"

namespace tessera::schema {

// Returns the strings of a format: date, time, date-time, duration (RFC 3339), ipv4, ipv6, uuid, email, hostname, uri
// (also as url), uri-reference and their international forms (only ASCII is generated), json-pointer,
// relative-json-pointer, uri-template, and regex (only plain regular expressions are generated: characters, classes,
// and groups without nesting). Returns nothing for other names ("int64", "password"), which JSON Schema treats as
// annotations.
Result<std::optional<TextTerm>> format_term(std::string_view name);

}  // namespace tessera::schema
