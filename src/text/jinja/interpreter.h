// Evaluates a template: statements write text, expressions give values. One object renders once, on
// one thread.
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

// Names and their values inside one block; a name that is not here is looked for around it.
struct Scope {
  std::vector<std::pair<std::string, Value>> names;
  Scope* parent = nullptr;
  bool captured = false;  // a function defined inside may still look names up here

  const Value* find(std::string_view name) const;  // looks here, then in the scopes around; null: not found
  void set(std::string_view name, Value value);    // here
};

class Interpreter {
 public:
  // Borrows the program, which must outlive this object. `now`: what strftime_now() formats.
  Interpreter(const Program& program, Budget budget, std::optional<std::time_t> now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  void set_variable(std::string_view name, Value value) { globals_.set(name, std::move(value)); }
  // The rendered text. Errors carry line and column of the innermost failing part.
  Result<std::string> render();

  // What filters, tests and functions spend.
  Budget& budget() { return budget_; }
  Result<Value> call(const Value& function, const CallArguments& arguments);
  std::time_t now() const { return now_.has_value() ? *now_ : std::time(nullptr); }

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // One more level of recursion.
  class Nested {
   public:
    explicit Nested(Interpreter& interpreter) : interpreter_(interpreter) { ++interpreter_.depth_; }
    ~Nested() { --interpreter_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Status check() const;  // resource_exhausted where the nesting is too deep

   private:
    Interpreter& interpreter_;
  };
  class ScopeGuard;  // a scope for the length of a block
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
  // The current scope. It lives as long as this object from now on, because a function will refer to it.
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
  // The error with line and column, unless it has them already from a part inside.
  Status place(std::size_t offset, Status why);

  const Program& program_;
  Budget budget_;
  std::optional<std::time_t> now_;
  Scope globals_;
  Scope* scope_ = &globals_;
  std::vector<std::unique_ptr<Scope>> kept_;  // captured scopes whose blocks have ended
  std::vector<Value> block_texts_;            // the values of kBlockText, innermost last
  int depth_ = 0;
  bool placed_ = false;
};

}  // namespace tessera::jinja
