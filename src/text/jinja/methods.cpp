#include "tessera/text/jinja/methods.h"

#include <algorithm>

#include "tessera/text/jinja/arguments.h"
#include "tessera/text/jinja/interpreter.h"
#include "tessera/text/jinja/string_methods.h"

namespace tessera::jinja {
namespace {

Result<Value> keys(Interpreter&, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("keys", call, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().items) items.push_back(key);
  return Value::list(std::move(items), List::Kind::kKeys);
}

Result<Value> dict_values(Interpreter&, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("values", call, {}));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().items) items.push_back(value);
  return Value::list(std::move(items), List::Kind::kValues);
}

Result<Value> dict_items(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("items", call, {}));
  TRY(interpreter.budget().spend(static_cast<std::int64_t>(self.as_dict().items.size())));
  std::vector<Value> items;
  for (const auto& [key, value] : self.as_dict().items) {
    items.push_back(TRY(Value::list({key, value}, List::Kind::kTuple)));
  }
  return Value::list(std::move(items), List::Kind::kItems);
}

Result<Value> get(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("get", call, {"key", "default"}, 1));
  TRY(check_hashable(a[0]));
  const Value* found = TRY(find_key(self.as_dict(), a[0], interpreter.budget()));
  if (found != nullptr) return *found;
  return a.given(1) ? a[1] : Value();
}

Result<Value> copy(Interpreter&, const Value& self, const CallArguments& call) {
  TRY(Arguments::bind("copy", call, {}));
  return self;
}

constexpr NamedMethod kDictMethods[] = {
    {"keys", keys}, {"values", dict_values}, {"items", dict_items}, {"get", get}, {"copy", copy}};

Result<Value> index_of(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("index", call, {"value"}, 1));
  const auto& items = self.as_list().items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (TRY(equal(items[i], a[0], interpreter.budget()))) return Value(static_cast<std::int64_t>(i));
  }
  return invalid_argument("index(): the value is not in the list");
}

Result<Value> count_items(Interpreter& interpreter, const Value& self, const CallArguments& call) {
  const Arguments a = TRY(Arguments::bind("count", call, {"value"}, 1));
  std::int64_t count = 0;
  for (const Value& item : self.as_list().items) count += TRY(equal(item, a[0], interpreter.budget())) ? 1 : 0;
  return Value(count);
}

constexpr NamedMethod kListMethods[] = {{"index", index_of}, {"count", count_items}, {"copy", copy}};

// The other methods of Python's str, which are not supported.
constexpr std::string_view kOtherStringMethods[] = {"casefold", "encode",    "expandtabs",   "format",    "format_map",
                                                    "isascii",  "isdecimal", "isidentifier", "isnumeric", "isprintable",
                                                    "istitle",  "maketrans", "translate"};
constexpr std::string_view kChangingMethods[] = {"append", "clear",   "extend",     "insert", "pop",   "popitem",
                                                 "remove", "reverse", "setdefault", "sort",   "update"};

// Methods whose result contains no text of an argument. If the string is marked safe (it must not be escaped), so is
// the result.
constexpr std::string_view kPlainMethods[] = {"strip", "lstrip", "rstrip",     "upper",
                                              "lower", "title",  "capitalize", "swapcase"};

template <std::size_t size>
bool is_among(std::string_view name, const std::string_view (&names)[size]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

std::optional<Value> bind_method(const Value& self, std::string_view name, std::span<const NamedMethod> methods) {
  for (const NamedMethod& entry : methods) {
    if (entry.name != name) continue;
    auto function = std::make_shared<Function>();
    function->name = name;
    function->call = [self, entry](Interpreter& interpreter, const CallArguments& call) -> Result<Value> {
      const bool reads_ends_only = entry.name == "startswith" || entry.name == "endswith";
      TRY(spend_texts(call, interpreter.budget()));
      if (self.is_string() && !reads_ends_only) TRY(interpreter.budget().spend_bytes(self.as_string().size()));
      Value out = TRY(entry.method(interpreter, self, call));
      if (!self.is_safe()) return out;
      if (out.is_list() || (out.is_string() && !is_among(entry.name, kPlainMethods))) {
        return unimplemented("the method '" + std::string(entry.name) + "' of a text marked safe is not supported");
      }
      return out.is_string() ? Value::safe_text(out.as_string()) : out;
    };
    return Value(std::shared_ptr<const Function>(std::move(function)));
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<Value>> find_method(const Value& self, std::string_view name) {
  using Out = std::optional<Value>;
  const auto unsupported = [&] {
    return unimplemented("the method '" + std::string(name) + "' of '" + std::string(type_name(self)) +
                         "' is not supported");
  };
  const auto changes = [&] {
    return invalid_argument("the method '" + std::string(name) + "' of '" + std::string(type_name(self)) +
                            "' would change the value; accepted: methods that do not");
  };
  if (self.is_string()) {
    if (is_among(name, kOtherStringMethods)) return unsupported();
    return bind_method(self, name, string_methods());
  }
  if (self.is_dict()) {
    if (name == "clear" || name == "pop" || name == "popitem" || name == "setdefault" || name == "update")
      return changes();
    if (name == "fromkeys") return unsupported();
    return bind_method(self, name, kDictMethods);
  }
  if (self.is_kind(List::Kind::kList)) {
    if (is_among(name, kChangingMethods) && name != "popitem" && name != "setdefault" && name != "update")
      return changes();
    return bind_method(self, name, kListMethods);
  }
  if (self.is_kind(List::Kind::kTuple) && name != "copy") return bind_method(self, name, kListMethods);
  return Out();
}

}  // namespace tessera::jinja
