// Catches: crashes of the JSON parser; printed text that does not parse back to the same value.
#include "tessera/base/json.h"

#include "fuzz.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Result<Json> json = Json::parse(fuzz::as_text(data, size), "input");
  if (!json.ok()) return 0;
  for (const int indent : {-1, 2}) {
    const Result<Json> again = Json::parse(json->dump(indent), "dump");
    fuzz::require(again.ok() && *again == *json, "what dump() prints parses to the same value");
  }
  return 0;
}
