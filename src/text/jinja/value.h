// Defines the values of a template, which behave like Python's values. A Value is small and cheap to copy. Strings and
// containers are shared and never change after they were made. Only namespaces and loops can change. A namespace cannot
// be put into a container. A loop may hold itself (Loop::changed), but only until it ends. Values therefore form no
// lasting cycle.
//
// Not thread-safe: values belong to one render() call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/json.h"
#include "tessera/base/status.h"

namespace tessera::jinja {

class Value;
class Interpreter;
struct CallArguments;

// The deepest nesting of values. Values that are nested deeper are refused, so that no walk over a value overflows the
// stack.
inline constexpr int kMaxValueDepth = 200;

// The budget of one render(). Every loop over template data spends from it.
class Budget {
 public:
  Budget(std::int64_t steps, std::size_t max_bytes) : steps_left_(steps), max_bytes_(max_bytes) {}
  // Returns resource_exhausted when the steps are used up.
  Status spend(std::int64_t steps = 1);
  // Spends one step for each kBytesOfStep bytes of a string that is read or made. `bytes` is the size of the string.
  // Returns resource_exhausted when the steps are used up, or if the string has more than max_bytes() bytes.
  Status spend_bytes(std::size_t bytes);
  static constexpr std::size_t kBytesOfStep = 16;
  std::int64_t steps_left() const { return steps_left_; }
  std::size_t max_bytes() const { return max_bytes_; }

 private:
  std::int64_t steps_left_;
  std::size_t max_bytes_;
};

struct Undefined {
  std::string why;  // "'name' is undefined"
};
struct None {};

struct Text {
  std::string bytes;  // well-formed UTF-8
  bool safe = false;  // came from the filter `safe` or `escape`
};

// A sequence of values: a list, a tuple, or what a function such as range() or dict.items() returns.
struct List {
  enum class Kind { kList, kTuple, kRange, kGenerator, kKeys, kValues, kItems };
  Kind kind = Kind::kList;
  std::vector<Value> items;
  int depth = 1;
  // A generator returns its elements only once.
  enum class Use { kFresh, kPartly, kDone };
  mutable Use use = Use::kFresh;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;               // in the order of insertion; all keys differ
  std::unordered_map<std::string_view, std::size_t> index;  // position in `items` of each key that is a string
  int depth = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
};

// A macro, a built-in function or a bound method.
struct Function {
  std::string name;
  std::function<Result<Value>(Interpreter&, const CallArguments&)> call;
};

// The `loop` variable. `items` is the whole sequence.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  int depth = 1;
  bool running = true;
  // The arguments of the last loop.changed(). They are dropped when the loop ends, because they could hold the loop
  // itself.
  std::vector<Value> changed;
  bool has_changed = false;
  Function recurse;  // loop(…) of a recursive loop; empty otherwise
};

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool v) : data_(v) {}                                        // NOLINT(google-explicit-constructor)
  Value(std::int64_t v) : data_(v) {}                                // NOLINT(google-explicit-constructor)
  Value(double v) : data_(v) {}                                      // NOLINT(google-explicit-constructor)
  Value(std::string v);                                              // NOLINT(google-explicit-constructor)
  Value(const char* v) : Value(std::string(v)) {}                    // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Text> v) : data_(std::move(v)) {}      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const List> v) : data_(std::move(v)) {}      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}      // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Namespace> v) : data_(std::move(v)) {}       // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<const Function> v) : data_(std::move(v)) {}  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Loop> v) : data_(std::move(v)) {}            // NOLINT(google-explicit-constructor)
  static Value undefined(std::string why);
  static Value safe_text(std::string bytes);
  // Returns `bytes` as text. The text is marked safe if `origin` is marked safe.
  static Value text_like(const Value& origin, std::string bytes) {
    return origin.is_safe() ? safe_text(std::move(bytes)) : Value(std::move(bytes));
  }

  // Returns a container of these items. Returns an error if the container would be nested too deep or hold a namespace.
  static Result<Value> list(std::vector<Value> items, List::Kind kind = List::Kind::kList);
  // Returns a dict. Later entries replace earlier ones with an equal key. Keys are strings, numbers, booleans or none.
  static Result<Value> dict(std::vector<std::pair<Value, Value>> items);
  static Result<Value> from_json(const Json& json);

  bool is_undefined() const { return is<std::shared_ptr<const Undefined>>(); }
  bool is_none() const { return is<None>(); }
  bool is_bool() const { return is<bool>(); }
  bool is_int() const { return is<std::int64_t>(); }  // false for a boolean
  bool is_float() const { return is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return is<std::shared_ptr<const List>>(); }  // any Kind
  bool is_dict() const { return is<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return is<std::shared_ptr<Namespace>>(); }
  bool is_function() const { return is<std::shared_ptr<const Function>>(); }
  bool is_loop() const { return is<std::shared_ptr<Loop>>(); }

  // Precondition of each function: the matching is_…() is true. A comment at the end of a line extends or replaces this
  // condition.
  const std::string& why_undefined() const { return get<std::shared_ptr<const Undefined>>()->why; }
  bool as_bool() const { return get<bool>(); }
  std::int64_t as_int() const { return is_bool() ? std::int64_t{as_bool()} : get<std::int64_t>(); }  // or is_bool()
  double as_double() const { return is_float() ? get<double>() : static_cast<double>(as_int()); }    // is_number()
  const std::string& as_string() const { return get<std::shared_ptr<const Text>>()->bytes; }
  bool is_safe() const { return is_string() && get<std::shared_ptr<const Text>>()->safe; }
  const List& as_list() const { return *get<std::shared_ptr<const List>>(); }
  const std::shared_ptr<const List>& list_pointer() const { return get<std::shared_ptr<const List>>(); }
  const Dict& as_dict() const { return *get<std::shared_ptr<const Dict>>(); }
  Namespace& as_namespace() const { return *get<std::shared_ptr<Namespace>>(); }
  const Function& as_function() const { return *get<std::shared_ptr<const Function>>(); }
  const std::shared_ptr<Loop>& as_loop() const { return get<std::shared_ptr<Loop>>(); }

  bool is_kind(List::Kind kind) const { return is_list() && as_list().kind == kind; }

 private:
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(data_);
  }
  template <class T>
  const T& get() const {
    return *std::get_if<T>(&data_);
  }
  std::variant<None, std::shared_ptr<const Undefined>, bool, std::int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
               std::shared_ptr<const Function>, std::shared_ptr<Loop>>
      data_;
};

// The evaluated arguments of a call.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Returns Python's name of the type: "str", "int", "NoneType", "list", …
std::string_view type_name(const Value& value);

// Returns Python's bool(value).
bool truthy(const Value& value);

// equal() returns whether a == b. compare() returns a number below 0, 0 or above 0 if a is less than, equal to or
// greater than b. compare() returns an error for values without an order.
Result<bool> equal(const Value& a, const Value& b, Budget& budget);
Result<int> compare(const Value& a, const Value& b, Budget& budget);

// Returns the value of a key, or null.
Result<const Value*> find_key(const Dict& dict, const Value& key, Budget& budget);
const Value* find_key(const Dict& dict, std::string_view key);

// Returns an error for lists and dicts, which cannot be keys nor be looked up as keys.
Status check_hashable(const Value& value);

// Returns Python's `needle in haystack`.
Result<bool> contains(const Value& haystack, const Value& needle, Budget& budget);

// Returns the elements of a list, the characters of a string, or the keys of a dict; an undefined value has none. Uses
// up a generator. Spends at least one step for each element.
Result<std::shared_ptr<const List>> iterate(const Value& value, Budget& budget);

// Returns the characters of a string, one value each.
std::vector<Value> characters(std::string_view text);

}  // namespace tessera::jinja
