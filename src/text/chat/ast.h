// The parsed template: expressions and statements in an arena, with every variable resolved to a slot.
//
// A template compiles to functions, as Jinja2 compiles it to Python functions: the root, each block, each macro and
// call body, the filter of a `for ... if` and the body of a recursive loop. Each has its slots; an inner function
// reaches the slots of those around it (`hops` functions out). Immutable after parsing, shared by threads.
#ifndef NUNSPARK_TEXT_CHAT_AST_H_
#define NUNSPARK_TEXT_CHAT_AST_H_

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/chat/runtime.h"

namespace nunspark::text::jinja {

enum class ExprKind : uint8_t {
  kText,          // template data
  kConst,         // constant
  kName,          // text; slot
  kNamespaceRef,  // text.attribute, only as an assignment target; slot
  kTuple,         // items
  kList,          // items
  kDict,          // items: key, value, key, value, ...
  kNot,           // left
  kNegate,        // left
  kPlus,          // left
  kBinary,        // binary_op: left, right
  kAnd,           // left, right
  kOr,            // left, right
  kCompare,       // left, then compare_ops[i] items[i]
  kConcat,        // items
  kCondition,     // left if test else right (right may be absent)
  kGetAttribute,  // left.text
  kGetItem,       // left[right]
  kSlice,         // [items: start, stop, step], each possibly null; only as the right of kGetItem
  kCall,          // left(call)
  kFilter,        // left|text(call); left null: the captured text of a filter block
  kTest,          // left is text(call)
};

enum class NameUse : uint8_t { kLoad, kStore, kParameter };

struct VariableRef {
  int hops = 0;
  int slot = -1;
};

struct Expr;

// Whether what is printed is escaped. As in Jinja2 that is a matter of the place in the source: a macro that is defined
// outside an autoescape block does not escape when it is called inside. Only where the block's condition is no constant
// is it known at the time of printing.
enum class EscapeMode : uint8_t { kOff, kOn, kWhenPrinting };

struct CallArguments {
  std::vector<Expr*> positional;
  std::vector<std::pair<std::string, Expr*>> keywords;
  Expr* star = nullptr;
  Expr* star_star = nullptr;
};

struct Expr {
  Expr(ExprKind expr_kind, int source_line) : kind(expr_kind), line(source_line) {}
  ExprKind kind;
  NameUse use = NameUse::kLoad;
  EscapeMode escape = EscapeMode::kOff;  // kConcat
  BinaryOp binary_op = BinaryOp::kAdd;
  int line;
  std::string text;
  std::string attribute;
  Value constant;
  Expr* left = nullptr;
  Expr* right = nullptr;
  Expr* test = nullptr;
  std::vector<Expr*> items;
  std::vector<CompareOp> compare_ops;
  CallArguments call;
  VariableRef variable;
  const Builtin* builtin = nullptr;  // of a filter or test; null: unknown, an error when reached
};

enum class StmtKind : uint8_t {
  kOutput,  // exprs
  kFor,
  kIf,           // test, body, elifs, else_body
  kSet,          // target = value
  kSetBlock,     // target, filter, body
  kMacro,        // text, parameters, defaults, body
  kCallBlock,    // value (a kCall), parameters, defaults, body
  kFilterBlock,  // filter, body
  kWith,         // targets, exprs, body
  kAutoescape,   // value, body
  kBlock,        // text, body in Template::blocks
  kImport,       // import, from and include: value; always an error when reached
  kExtends,      // likewise
  kBreak,
  kContinue,
};

// How a variable gets its value when its scope is entered.
struct Load {
  enum class Action : uint8_t { kResolve, kAlias, kUndefined };
  Action action;
  int slot;            // in the current function
  std::string name;    // kResolve: looked up in the context
  VariableRef source;  // kAlias
};

struct Scope {
  std::vector<Load> loads;
  std::vector<int> slots;  // all of the scope's own, parameters included: emptied when it is left
};

// A macro's or call block's body as a function.
struct MacroInfo {
  std::string name;
  bool anonymous = false;
  std::vector<std::string> parameter_names;
  std::vector<int> parameter_slots;
  std::vector<Expr*> defaults;  // of the last parameters
  int slot_count = 0;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;  // -1: not used by the body
  bool explicit_caller = false;                               // "caller" is an ordinary parameter
  Scope scope;
};

struct Stmt {
  Stmt(StmtKind stmt_kind, int source_line) : kind(stmt_kind), line(source_line) {}
  StmtKind kind;
  EscapeMode escape = EscapeMode::kOff;
  int line;
  std::string text;
  Expr* target = nullptr;
  Expr* value = nullptr;
  Expr* test = nullptr;
  Expr* filter = nullptr;
  std::vector<Expr*> exprs;
  std::vector<Expr*> targets;
  std::vector<Stmt*> body;
  std::vector<Stmt*> else_body;
  std::vector<Stmt*> elifs;
  std::vector<std::string> names;  // kImport: variables that it would set
  bool recursive = false;
  bool scoped = false;
  bool required = false;
  bool has_loop_object = false;

  Scope scope;       // of body
  Scope else_scope;  // kFor
  MacroInfo macro;

  // kFor with a condition: a function of its own that yields the accepted items.
  Expr* filter_target = nullptr;
  Scope filter_scope;
  int filter_slot_count = 0;
  int loop_slot = -1;      // of `loop`
  int function_slots = 0;  // recursive: slots of the loop function

  VariableRef variable;                                      // kMacro: where the macro goes; kFor recursive: none
  std::vector<std::pair<std::string, VariableRef>> exports;  // top-level assignments, also visible to blocks
  // kBlock with `scoped`: the variables that the block sees.
  std::vector<std::pair<std::string, VariableRef>> locals;
};

struct BlockInfo {
  Stmt* stmt = nullptr;
  int slot_count = 0;
  int self_slot = -1, super_slot = -1;
  Scope scope;
};

struct Template {
  std::deque<std::unique_ptr<Object>> constants;  // first: the expressions below refer to them to the end
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::vector<Stmt*> body;
  std::map<std::string, BlockInfo> blocks;
  int slot_count = 0;
  int self_slot = -1;
  Scope scope;
};

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_AST_H_
