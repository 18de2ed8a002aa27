// Defines the syntax tree of a template. The tree never changes after parsing, so that several threads may render the
// template at once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/text/jinja/lexer.h"
#include "tessera/text/jinja/value.h"

namespace tessera::jinja {

// The largest depth of nested expressions and statements, and the longest chain of operators. parse_template() refuses
// deeper or longer ones.
inline constexpr int kMaxSyntaxDepth = 150;

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOperator { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

// The arguments of a call: (a, *b, c=d, **e).
struct CallSyntax {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;  // null: none
  ExpressionPtr star_star;
};

struct Expression {
  // Each comment shows how an expression is written in Jinja. In the comments, the name of a member below (`parts`,
  // `call`, …) stands for the member's content.
  enum class Kind {
    kConstant,     // constant
    kName,         // name
    kBlockText,    // the text that a filter block or set block captured
    kList,         // parts
    kTuple,        // parts
    kDict,         // parts: key, value, key, value, …
    kAttribute,    // parts[0].name
    kItem,         // parts[0][parts[1]]
    kSlice,        // parts[0][parts[1]:parts[2]:parts[3]]; a null part is absent
    kCall,         // parts[0](call)
    kFilter,       // parts[0] | name(call)
    kTest,         // parts[0] is name(call)
    kNot,          // not parts[0]
    kNegative,     // -parts[0]
    kPositive,     // +parts[0]
    kBinary,       // parts[0] binary parts[1]
    kCompare,      // parts[0] compare[0] parts[1] compare[1] parts[2] …
    kAnd,          // parts[0] and parts[1]
    kOr,           // parts[0] or parts[1]
    kConcat,       // parts[0] ~ parts[1] ~ …
    kConditional,  // parts[0] if parts[1] else parts[2]; a null parts[2] is an undefined value
  };
  Kind kind;
  std::size_t offset;  // position in the source
  int depth = 1;
  std::string name{};
  Value constant{};
  std::vector<ExpressionPtr> parts{};
  CallSyntax call{};
  BinaryOperator binary{};
  std::vector<CompareOperator> compare{};
};

// The target of an assignment.
struct Target {
  enum class Kind { kName, kMember, kTuple };
  Kind kind = Kind::kName;
  std::size_t offset = 0;
  std::string name{};
  std::string member{};         // kMember: name.member of a namespace
  std::vector<Target> parts{};  // kTuple
};

// The parameters of a macro: (a, b, c=1). The last defaults.size() names have defaults.
struct Signature {
  std::vector<std::string> names;
  std::vector<ExpressionPtr> defaults;
  bool uses_caller = false;   // whether the body uses the name `caller`
  bool uses_varargs = false;  // whether the body uses the name `varargs`
  bool uses_kwargs = false;   // whether the body uses the name `kwargs`
};

struct Statement;
using Body = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  // Each comment shows how a statement is written in Jinja. In the comments, the name of a member below (`targets`,
  // `bodies`, …) stands for the member's content.
  enum class Kind {
    kText,         // name: the text
    kPrint,        // expressions
    kFor,          // for targets[0] in expressions[0] if expressions[1], which may be null; bodies[0], else bodies[1]
    kIf,           // if expressions[i]: bodies[i] …, else bodies.back(), which has no expression
    kSet,          // targets[0] = expressions[0]
    kSetBlock,     // targets[0] = the text of bodies[0], filtered by expressions[0] unless null
    kMacro,        // name, signature, bodies[0]
    kCallBlock,    // call expressions[0] (a kCall), whose `caller` has signature and bodies[0]
    kFilterBlock,  // the text of bodies[0], filtered by expressions[0]
    kWith,         // targets[i] = expressions[i]; bodies[0]
    kBreak,
    kContinue,
    kBlock,  // bodies[0], the inside of {% generation %}
  };
  Kind kind;
  std::size_t offset;
  std::string name{};
  std::vector<Target> targets{};
  std::vector<ExpressionPtr> expressions{};
  std::vector<Body> bodies{};
  Signature signature{};
  bool recursive = false;  // kFor: whether the loop may call itself
};

struct Program {
  Source source;
  Body body;
};

}  // namespace tessera::jinja
