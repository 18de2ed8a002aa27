// The filters of {{ value | filter(…) }}: Jinja's, with `tojson` as Hugging Face defines it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tessera/base/status.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

using Filter = Result<Value> (*)(Interpreter&, const Value& input, const CallArguments&);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Of text and single values; of sequences.
std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> sequence_filters();

// Null where there is none of this name.
Filter find_filter(std::string_view name);
// Runs it, and takes what reading the texts costs off the budget.
Result<Value> apply_filter(Filter filter, Interpreter& interpreter, const Value& input, const CallArguments& call);
// All names, for errors.
std::string filter_names();

}  // namespace tessera::jinja
