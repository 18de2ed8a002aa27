// Implements Jinja's filters, which templates use as {{ value | filter(…) }}. `tojson` works as Hugging Face defines
// it.
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

// text_filters() returns the filters of texts and single values. sequence_filters() returns the filters of sequences.
std::span<const NamedFilter> text_filters();
std::span<const NamedFilter> sequence_filters();

// Returns null if no filter has this name.
Filter find_filter(std::string_view name);
// Spends the budget for reading the texts of the input and the arguments, and runs the filter.
Result<Value> apply_filter(Filter filter, Interpreter& interpreter, const Value& input, const CallArguments& call);
// Returns the names of all filters, for error messages.
std::string filter_names();

}  // namespace tessera::jinja
