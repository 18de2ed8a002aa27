#include "tessera/text/jinja/interpreter.h"

#include "tessera/text/jinja/functions.h"
#include "tessera/text/jinja/operators.h"
#include "tessera/text/jinja/print.h"

namespace tessera::jinja {
namespace {

// The deepest nesting of statements, expressions and calls. A recursive macro uses about ten levels for each call. A
// level takes at most a few KiB of stack, even in builds with sanitizers.
constexpr int kMaxRunDepth = 700;
// The maximum number of scopes that outlive their blocks because functions refer to them.
constexpr std::size_t kMaxKeptScopes = 100'000;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [other, value] : scope->names) {
      if (other == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [other, old] : names) {
    if (other != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

Status Interpreter::Nested::check() const {
  if (interpreter_.depth_ <= kMaxRunDepth) return ok_status();
  return resource_exhausted("the template calls itself, or nests, deeper than it may");
}

// The destructor marks a loop as ended. It runs when the loop's block is left, even if an error ends the block.
class Interpreter::LoopGuard {
 public:
  explicit LoopGuard(std::shared_ptr<Loop> loop) : loop_(std::move(loop)) {}
  ~LoopGuard() {
    loop_->running = false;
    loop_->changed.clear();
  }
  LoopGuard(const LoopGuard&) = delete;
  LoopGuard& operator=(const LoopGuard&) = delete;

 private:
  std::shared_ptr<Loop> loop_;
};

class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), before_(interpreter.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    interpreter_.scope_ = scope_.get();
  }
  ~ScopeGuard() {
    interpreter_.scope_ = before_;
    if (scope_->captured) interpreter_.kept_.push_back(std::move(scope_));
  }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

Interpreter::Interpreter(const Program& program, Budget budget, std::optional<std::time_t> now)
    : program_(program), budget_(budget), now_(now) {
  for (auto& [name, function] : global_functions()) globals_.set(name, std::move(function));
}

Interpreter::~Interpreter() {
  // A kept scope may hold a macro that refers to another scope, so all values are released before any scope is freed.
  globals_.names.clear();
  for (const auto& scope : kept_) scope->names.clear();
}

Result<std::string> Interpreter::render() {
  std::string out;
  ScopeGuard top(*this, &globals_);
  TRY(run(program_.body, out));
  return out;
}

Status Interpreter::place(std::size_t offset, Status why) {
  if (placed_) return why;
  placed_ = true;
  return program_.source.error(offset, why);
}

Result<Interpreter::Flow> Interpreter::run(const Body& body, std::string& out) {
  for (const auto& statement : body) {
    const Flow flow = TRY(run(*statement, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const Statement& statement, std::string& out) {
  const Nested nested(*this);
  Status allowed = nested.check();
  if (allowed.ok()) allowed = budget_.spend();
  if (!allowed.ok()) return place(statement.offset, std::move(allowed));
  Result<Flow> flow = run_kind(statement, out);
  if (!flow.ok()) return place(statement.offset, std::move(flow).status());
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_kind(const Statement& statement, std::string& out) {
  switch (statement.kind) {
    case Statement::Kind::kText:
      out += statement.name;
      TRY(budget_.spend_bytes(out.size() > budget_.max_bytes() ? out.size() : statement.name.size()));
      break;
    case Statement::Kind::kPrint: TRY(print(statement, out)); break;
    case Statement::Kind::kFor: TRY(run_for(statement, out)); break;
    case Statement::Kind::kIf: return run_if(statement, out);
    case Statement::Kind::kSet: TRY(assign(statement.targets[0], TRY(eval(*statement.expressions[0])))); break;
    case Statement::Kind::kSetBlock: TRY(run_set_block(statement)); break;
    case Statement::Kind::kMacro: scope_->set(statement.name, TRY(make_macro(statement, statement.name))); break;
    case Statement::Kind::kCallBlock: TRY(run_call_block(statement, out)); break;
    case Statement::Kind::kFilterBlock: TRY(run_filter_block(statement, out)); break;
    case Statement::Kind::kWith: TRY(run_with(statement, out)); break;
    case Statement::Kind::kBreak: return Flow::kBreak;
    case Statement::Kind::kContinue: return Flow::kContinue;
    case Statement::Kind::kBlock: return run(statement.bodies[0], out);
  }
  return Flow::kNext;
}

Status Interpreter::print(const Statement& statement, std::string& out) {
  for (const ExpressionPtr& expression : statement.expressions) {
    const Value value = TRY(eval(*expression));
    Status printed = append_str(value, out, budget_);
    if (!printed.ok()) return place(expression->offset, std::move(printed));
  }
  return ok_status();
}

Result<Interpreter::Flow> Interpreter::run_if(const Statement& statement, std::string& out) {
  for (std::size_t i = 0; i < statement.expressions.size(); ++i) {
    if (truthy(TRY(eval(*statement.expressions[i])))) return run(statement.bodies[i], out);
  }
  return run(statement.bodies.back(), out);
}

Status Interpreter::run_for(const Statement& statement, std::string& out) {
  return run_loop(statement, TRY(eval(*statement.expressions[0])), 1, out);
}

// Returns the items that satisfy the loop's condition.
Result<std::vector<Value>> Interpreter::loop_items(const Statement& statement, const Value& sequence) {
  const std::shared_ptr<const List> all = TRY(iterate(sequence, budget_));
  if (statement.expressions[1] == nullptr) return all->items;
  std::vector<Value> out;
  for (const Value& item : all->items) {
    const ScopeGuard scope(*this, scope_);
    TRY(assign(statement.targets[0], item));
    if (truthy(TRY(eval(*statement.expressions[1])))) out.push_back(item);
  }
  return out;
}

Status Interpreter::run_loop(const Statement& statement, const Value& sequence, int depth, std::string& out) {
  const Nested nested(*this);
  TRY(nested.check());
  auto items = std::make_shared<List>();
  items->items = TRY(loop_items(statement, sequence));
  auto loop = std::make_shared<Loop>();
  loop->items = items;
  loop->depth = depth;
  const LoopGuard guard(loop);
  if (statement.recursive) {
    Scope* around = TRY(keep_scope());
    loop->recurse.name = "loop";
    loop->recurse.call = [&statement, around, depth](Interpreter& self, const CallArguments& call) -> Result<Value> {
      if (call.positional.size() != 1 || !call.named.empty()) return invalid_argument("loop() takes one sequence");
      std::string text;
      Scope* before = std::exchange(self.scope_, around);
      Status ran = self.run_loop(statement, call.positional[0], depth + 1, text);
      self.scope_ = before;
      TRY(std::move(ran));
      return Value(std::move(text));
    };
  }
  for (std::size_t i = 0; i < items->items.size(); ++i) {
    TRY(budget_.spend());
    loop->index = i;
    const ScopeGuard scope(*this, scope_);
    scope_->set("loop", Value(loop));
    TRY(assign(statement.targets[0], items->items[i]));
    if (TRY(run(statement.bodies[0], out)) == Flow::kBreak) {
      if (sequence.is_kind(List::Kind::kGenerator)) sequence.as_list().use = List::Use::kPartly;
      break;
    }
  }
  if (!items->items.empty()) return ok_status();
  const ScopeGuard scope(*this, scope_);
  TRY(run(statement.bodies[1], out));
  return ok_status();
}

Result<std::string> Interpreter::capture(const Body& body) {
  std::string text;
  const ScopeGuard scope(*this, scope_);
  TRY(run(body, text));
  return text;
}

Result<Value> Interpreter::filter_text(const Expression& filters, std::string text) {
  block_texts_.emplace_back(std::move(text));
  Result<Value> value = eval(filters);
  block_texts_.pop_back();
  return value;
}

Status Interpreter::run_set_block(const Statement& statement) {
  std::string text = TRY(capture(statement.bodies[0]));
  const ExpressionPtr& filters = statement.expressions[0];
  const Value value = filters == nullptr ? Value(std::move(text)) : TRY(filter_text(*filters, std::move(text)));
  return assign(statement.targets[0], value);
}

Status Interpreter::run_filter_block(const Statement& statement, std::string& out) {
  const Value value = TRY(filter_text(*statement.expressions[0], TRY(capture(statement.bodies[0]))));
  return append_str(value, out, budget_);
}

Status Interpreter::run_call_block(const Statement& statement, std::string& out) {
  const Expression& call = *statement.expressions[0];
  const Value function = TRY(eval(*call.parts[0]));
  CallArguments arguments = TRY(eval_arguments(call.call));
  arguments.named.emplace_back("caller", TRY(make_macro(statement, "caller")));
  Result<Value> value = this->call(function, arguments);
  if (!value.ok()) return place(call.offset, std::move(value).status());
  return append_str(*value, out, budget_);
}

Status Interpreter::run_with(const Statement& statement, std::string& out) {
  std::vector<Value> values;
  for (const ExpressionPtr& expression : statement.expressions) values.push_back(TRY(eval(*expression)));
  const ScopeGuard scope(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) TRY(assign(statement.targets[i], values[i]));
  TRY(run(statement.bodies[0], out));
  return ok_status();
}

Status Interpreter::assign(const Target& target, const Value& value) {
  if (target.kind == Target::Kind::kName) {
    scope_->set(target.name, value);
    return ok_status();
  }
  if (target.kind == Target::Kind::kMember) {
    const Value* space = scope_->find(target.name);
    if (space == nullptr || !space->is_namespace()) {
      return place(target.offset, invalid_argument("cannot assign to '" + target.name + "." + target.member +
                                                   "'; accepted: members of a namespace"));
    }
    // A member's value must not be a namespace, so that no value can contain itself. Value::list() returns an error for
    // a namespace, and for a value that is nested too deep.
    Result<Value> checked = Value::list({value});
    if (!checked.ok()) return place(target.offset, std::move(checked).status());
    for (auto& [name, member] : space->as_namespace().members) {
      if (name != target.member) continue;
      member = value;
      return ok_status();
    }
    space->as_namespace().members.emplace_back(target.member, value);
    return ok_status();
  }
  Result<std::shared_ptr<const List>> items = iterate(value, budget_);
  if (!items.ok()) return place(target.offset, std::move(items).status());
  const std::vector<Value>& values = (*items)->items;
  if (values.size() != target.parts.size()) {
    return place(target.offset, invalid_argument("cannot unpack " + std::to_string(values.size()) + " values into " +
                                                 std::to_string(target.parts.size()) + " names"));
  }
  for (std::size_t i = 0; i < values.size(); ++i) TRY(assign(target.parts[i], values[i]));
  return ok_status();
}

Result<Scope*> Interpreter::keep_scope() {
  if (kept_.size() > kMaxKeptScopes) return resource_exhausted("too many macros, callers and recursive loops");
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  return scope_;
}

Result<Value> Interpreter::make_macro(const Statement& statement, const std::string& name) {
  Scope* around = TRY(keep_scope());
  auto function = std::make_shared<Function>();
  function->name = name;
  function->call = [&statement, name, around](Interpreter& self, const CallArguments& call) {
    return self.call_macro(statement, name, around, call);
  };
  return Value(std::shared_ptr<const Function>(std::move(function)));
}

Result<Value> Interpreter::call_macro(const Statement& statement, const std::string& name, Scope* around,
                                      const CallArguments& arguments) {
  const ScopeGuard scope(*this, around);
  TRY(bind_macro_arguments(statement, name, arguments));
  std::string text;
  TRY(run(statement.bodies[0], text));
  return Value(std::move(text));
}

Status Interpreter::bind_macro_arguments(const Statement& statement, const std::string& name,
                                         const CallArguments& arguments) {
  const Signature& signature = statement.signature;
  const auto refuse = [&](const std::string& why) { return invalid_argument("macro '" + name + "' " + why); };
  const std::size_t count = signature.names.size();
  const std::size_t required = count - signature.defaults.size();
  std::vector<std::pair<Value, Value>> extra_named;
  std::vector<const Value*> given(count);
  for (std::size_t i = 0; i < std::min(count, arguments.positional.size()); ++i) given[i] = &arguments.positional[i];
  Value caller = Value::undefined("no caller defined");
  for (const auto& [key, value] : arguments.named) {
    std::size_t at = 0;
    while (at < count && signature.names[at] != key) ++at;
    if (at < count) {
      if (given[at] != nullptr) return refuse("got multiple values for argument '" + key + "'");
      given[at] = &value;
    } else if (key == "caller" && signature.uses_caller) {
      caller = value;
    } else if (signature.uses_kwargs) {
      extra_named.emplace_back(Value(key), value);
    } else {
      return refuse("takes no keyword argument '" + key + "'");
    }
  }
  std::vector<Value> extra;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) extra.push_back(arguments.positional[i]);
  if (!extra.empty() && !signature.uses_varargs) {
    return refuse("takes not more than " + std::to_string(count) + " argument(s)");
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (given[i] != nullptr) {
      scope_->set(signature.names[i], *given[i]);
    } else if (i >= required) {
      scope_->set(signature.names[i], TRY(eval(*signature.defaults[i - required])));
    } else {
      scope_->set(signature.names[i], Value::undefined("parameter '" + signature.names[i] + "' was not provided"));
    }
  }
  if (signature.uses_caller) scope_->set("caller", std::move(caller));
  if (signature.uses_kwargs) scope_->set("kwargs", TRY(Value::dict(std::move(extra_named))));
  if (signature.uses_varargs) scope_->set("varargs", TRY(Value::list(std::move(extra), List::Kind::kTuple)));
  return ok_status();
}

Result<Value> Interpreter::call(const Value& function, const CallArguments& arguments) {
  if (function.is_function()) return function.as_function().call(*this, arguments);
  if (function.is_loop()) {
    // Calls a copy of the function, because the loop that holds the function may end while the function runs.
    const Function recurse = function.as_loop()->recurse;
    if (!recurse.call) return invalid_argument("this loop is not recursive; write {% for … recursive %}");
    return recurse.call(*this, arguments);
  }
  if (function.is_undefined()) return invalid_argument(function.why_undefined());
  return invalid_argument("'" + std::string(type_name(function)) + "' object is not callable");
}

}  // namespace tessera::jinja
