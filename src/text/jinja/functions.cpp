#include "tessera/text/jinja/functions.h"

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/print.h"

namespace tessera::jinja {
namespace {

Result<Value> range(Interpreter& interpreter, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("range", call, {"start", "stop", "step"}, 1));
  std::int64_t start = 0;
  std::int64_t stop = TRY(a.integer(0));
  if (a.given(1)) {
    start = stop;
    stop = TRY(a.integer(1));
  }
  const std::int64_t step = TRY(a.integer_or(2, 1));
  if (step == 0) return invalid_argument("range(): argument 'step' must not be zero");
  // The distance between two 64-bit integers always fits in an unsigned 64-bit integer.
  const bool some = step > 0 ? start < stop : start > stop;
  const auto low = static_cast<std::uint64_t>(step > 0 ? start : stop);
  const auto high = static_cast<std::uint64_t>(step > 0 ? stop : start);
  const std::uint64_t by = step > 0 ? static_cast<std::uint64_t>(step) : 0 - static_cast<std::uint64_t>(step);
  const std::uint64_t count = some ? (high - low - 1) / by + 1 : 0;
  if (count > static_cast<std::uint64_t>(kMaxRange)) {
    return resource_exhausted("a range of " + std::to_string(count) + " numbers; accepted: at most " +
                              std::to_string(kMaxRange));
  }
  TRY(interpreter.budget().spend(static_cast<std::int64_t>(count)));
  std::vector<Value> items;
  for (std::uint64_t i = 0; i < count; ++i) {
    items.emplace_back(
        static_cast<std::int64_t>(static_cast<std::uint64_t>(start) + i * static_cast<std::uint64_t>(step)));
  }
  return Value::list(std::move(items), List::Kind::kRange);
}

// Returns the items of a call such as dict(other, a=1): the items of `other`, then the named arguments.
Result<std::vector<std::pair<Value, Value>>> pairs_of(const char* function, const CallArguments& call) {
  std::vector<std::pair<Value, Value>> out;
  if (call.positional.size() > 1)
    return invalid_argument(std::string(function) + "() takes at most 1 positional argument");
  if (call.positional.size() == 1) {
    const Value& other = call.positional[0];
    if (!other.is_dict()) {
      return unimplemented(std::string(function) + "() of a value of type '" + std::string(type_name(other)) +
                           "'; accepted: a dict");
    }
    out = other.as_dict().items;
  }
  for (const auto& [name, value] : call.named) out.emplace_back(Value(name), value);
  return out;
}

Result<Value> dict(Interpreter& interpreter, const CallArguments& call) {
  std::vector<std::pair<Value, Value>> items = TRY(pairs_of("dict", call));
  TRY(interpreter.budget().spend(static_cast<std::int64_t>(items.size())));
  return Value::dict(std::move(items));
}

Result<Value> make_namespace(Interpreter& interpreter, const CallArguments& call) {
  // Builds a dict first. This makes later names replace earlier ones, and refuses values that a dict cannot hold.
  const Value members = TRY(dict(interpreter, call));
  auto out = std::make_shared<Namespace>();
  for (const auto& [name, value] : members.as_dict().items) {
    if (!name.is_string()) return invalid_argument("namespace(): accepted: names that are strings");
    out->members.emplace_back(name.as_string(), value);
  }
  return Value(std::move(out));
}

Result<Value> raise_exception(Interpreter& interpreter, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("raise_exception", call, {"message"}, 1));
  return invalid_argument(TRY(str(a[0], interpreter.budget())));
}

Result<Value> strftime_now(Interpreter& interpreter, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("strftime_now", call, {"format"}, 1));
  const std::string format = TRY(a.string(0));
  if (format.size() > 1000) return resource_exhausted("strftime_now(): accepted: a format of at most 1000 bytes");
  const std::time_t now = interpreter.now();
  std::tm time{};
  if (localtime_r(&now, &time) == nullptr) return internal_error("strftime_now(): the time has no date");
  // strftime() returns 0 both for a buffer that is too small and for an empty result. A space makes every result
  // non-empty.
  const std::string padded = format + " ";
  std::string out(64 * padded.size() + 64, '\0');
  const std::size_t length = std::strftime(out.data(), out.size(), padded.c_str(), &time);
  if (length == 0) return invalid_argument("strftime_now(): the format cannot be used: " + format);
  out.resize(length - 1);
  return Value(std::move(out));
}

}  // namespace

std::vector<std::pair<std::string, Value>> global_functions() {
  using Call = Result<Value> (*)(Interpreter&, const CallArguments&);
  const std::pair<const char*, Call> functions[] = {{"range", range},
                                                    {"dict", dict},
                                                    {"namespace", make_namespace},
                                                    {"raise_exception", raise_exception},
                                                    {"strftime_now", strftime_now}};
  std::vector<std::pair<std::string, Value>> out;
  for (const auto& [name, call] : functions) {
    auto function = std::make_shared<Function>();
    function->name = name;
    function->call = call;
    out.emplace_back(name, Value(std::shared_ptr<const Function>(std::move(function))));
  }
  return out;
}

}  // namespace tessera::jinja
