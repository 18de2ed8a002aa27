// Evaluates a template: statements write text, and expressions give values. An Interpreter renders once, on one thread.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/status.h"
#include "tessera/text/jinja/ast.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// The names of one block and their values. A name that is not here is looked up in the enclosing blocks.
struct Scope {
  std::vector<std::pair<std::string, Value>> names;
  Scope* parent = nullptr;
  bool captured = false;  // a function that was defined inside may still look up names here

  const Value* find(std::string_view name) const;  // looks here, then in the enclosing scopes; null: not found
  void set(std::string_view name, Value value);    // sets the name in this scope
};

class Interpreter {
 public:
  // Borrows the program, which must outlive this object. `now` is the time that strftime_now() formats.
  Interpreter(const Program& program, Budget budget, std::optional<std::time_t> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(std::string_view name, Value value) { globals_.set(name, std::move(value)); }
  // Returns the rendered text. Errors have the line and column of the innermost failing part.
  Result<std::string> render();

  // Returns the budget that filters, tests and functions spend.
  Budget& budget() { return budget_; }
  Result<Value> call(const Value& function, const CallArguments& arguments);
  std::time_t now() const { return now_.has_value() ? *now_ : std::time(nullptr); }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // Counts one more level of recursion while it lives.
  class Nested {
   public:
    explicit Nested(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
    ~Nested() { --interpreter_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Status check() const;  // returns resource_exhausted if the nesting is too deep

   private:
    Interpreter& interpreter_;
  };
  class ScopeGuard;  // a scope for the duration of a block
  class LoopGuard;

  Result<Flow> run(const Body& body, std::string& out);
  Result<Flow> run(const Statement& statement, std::string& out);
  Result<Flow> run_kind(const Statement& statement, std::string& out);
  Status print(const Statement& statement, std::string& out);
  Result<Flow> run_if(const Statement& statement, std::string& out);
  Status run_for(const Statement& statement, std::string& out);
  Status run_loop(const Statement& statement, const Value& sequence, int depth, std::string& out);
  Result<std::vector<Value>> loop_items(const Statement& statement, const Value& sequence);
  Status run_set_block(const Statement& statement);
  Status run_call_block(const Statement& statement, std::string& out);
  Status run_filter_block(const Statement& statement, std::string& out);
  Status run_with(const Statement& statement, std::string& out);
  Status assign(const Target& target, const Value& value);
  // Returns the current scope, to which a function will refer. The scope then lives as long as the interpreter.
  Result<Scope*> keep_scope();
  Result<Value> make_macro(const Statement& statement, const std::string& name);
  Result<Value> call_macro(const Statement& statement, const std::string& name, Scope* around,
                           const CallArguments& arguments);
  Status bind_macro_arguments(const Statement& statement, const std::string& name, const CallArguments& arguments);
  Result<std::string> capture(const Body& body);
  Result<Value> filter_text(const Expression& filters, std::string text);

  Result<Value> eval(const Expression& expression);
  Result<Value> eval_kind(const Expression& expression);
  Result<std::vector<Value>> eval_parts(const Expression& expression);
  Result<Value> eval_dict(const Expression& expression);
  Result<Value> eval_slice(const Expression& expression);
  Result<Value> eval_call(const Expression& expression);
  Result<Value> eval_compare(const Expression& expression);
  Result<Value> eval_concat(const Expression& expression);
  Result<CallArguments> eval_arguments(const CallSyntax& call);
  Value look_up(const std::string& name) const;
  // Adds line and column to the error, unless an inner part has added them already.
  Status place(std::size_t offset, Status why);

  const Program& program_;
  Budget budget_;
  std::optional<std::time_t> now_;
  Scope globals_;
  Scope* scope_ = &globals_;
  std::vector<std::unique_ptr<Scope>> kept_;  // captured scopes whose blocks have ended
  std::vector<Value> block_texts_;  // captured texts of the blocks whose filters are being evaluated, innermost last
  int depth_ = 0;
  bool placed_ = false;
};

}  // namespace tessera::jinja
