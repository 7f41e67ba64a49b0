// Runs a parsed template. One Interpreter per render, one thread.
#ifndef NUNSPARK_TEXT_CHAT_INTERPRETER_H_
#define NUNSPARK_TEXT_CHAT_INTERPRETER_H_

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/runtime.h"

namespace nunspark::text::jinja {

// The template's context: what it was rendered with, and its own top-level assignments.
struct ContextObject : Object {
  ContextObject() : Object(Kind::kEnv) {}
  void Clear() override {
    variables.clear();
    outer = Value();
  }
  std::unordered_map<std::string, Value, TextHasher> variables;
  Value outer;  // the ContextObject below, or none
};

// The variables of one running function.
struct EnvObject : Object {
  EnvObject() : Object(Kind::kEnv) {}
  void Clear() override {
    slots.clear();
    parent = context = Value();
  }
  Values slots;
  Value parent;   // the EnvObject of the function around, or none
  Value context;  // the ContextObject
};

// A macro, or the body of a call block (stmt->kind tells).
struct MacroObject : Object {
  MacroObject(const Stmt* statement, Value around) : Object(Kind::kMacro), stmt(statement), env(std::move(around)) {}
  void Clear() override { env = Value(); }
  const MacroInfo& info() const { return stmt->macro; }
  const Stmt* stmt;
  Value env;
};

// {{ self.name }}: a block of the template.
struct BlockObject : Object {
  BlockObject(const BlockInfo* block_info, Value with)
      : Object(Kind::kBlock), block(block_info), context(std::move(with)) {}
  void Clear() override { context = Value(); }
  const BlockInfo* block;
  Value context;
};

struct SelfObject : Object {
  explicit SelfObject(Value with) : Object(Kind::kSelf), context(std::move(with)) {}
  void Clear() override { context = Value(); }
  Value context;
};

// The `loop` variable: wraps what the loop walks.
class LoopObject : public Object {
 public:
  LoopObject() : Object(Kind::kLoop) {}
  void Clear() override;
  bool Start(Runtime& runtime, const Value& iterable);
  // Moves to the next item. False at the end, and on an error.
  bool Next(Runtime& runtime, Value* item);
  // loop.index, loop.last, ...; kMissing for another name.
  Value Attribute(Runtime& runtime, std::string_view name);
  Value Cycle(Runtime& runtime, const Values& items) const;
  Value Changed(Runtime& runtime, const Values& values);
  int64_t index() const { return index0_ + 1; }
  int64_t Length(Runtime& runtime);  // -1 when failed

  const Stmt* recursive = nullptr;  // the loop that a call of this object runs again
  Value env;                        // around that loop
  int64_t depth0 = 0;

 private:
  bool Peek(Runtime& runtime);  // fills after_; false at the end

  Value iterable_;
  Cursor cursor_;
  int64_t index0_ = -1;
  int64_t length_ = -1;
  Value after_ = Value::Missing(), current_ = Value::Missing(), before_ = Value::Missing();
  Value last_changed_ = Value::Missing();
};

class Interpreter {
 public:
  // `context`: a dict of the variables the template sees.
  Interpreter(Runtime& runtime, const Template& tree, const Value& context);
  // False when the runtime failed.
  bool Render(std::string* output);

  Value CallMacro(const MacroObject& macro, Arguments& arguments);
  Value CallLoop(const LoopObject& loop, const Value& iterable);
  Value CallBlock(const BlockObject& block);
  const BlockInfo* FindBlock(std::string_view name) const;
  // The next accepted item of a `for ... if`.
  bool NextFiltered(const Stmt* stmt, EnvObject& env, Cursor& cursor, Value* item);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue, kFailed };

  // --- Statements (interpreter.cc) ---
  Flow ExecuteAll(const std::vector<Stmt*>& body, EnvObject& env);
  Flow Execute(const Stmt* stmt, EnvObject& env);
  Flow Output(const Stmt* stmt, EnvObject& env);
  Flow If(const Stmt* stmt, EnvObject& env);
  Flow For(const Stmt* stmt, EnvObject& env);
  Flow RunLoop(const Stmt* stmt, const Value& iterable, EnvObject& env, EnvObject& around, int64_t depth0);
  Value RunLoopFunction(const Stmt* stmt, const Value& iterable, EnvObject& around, int64_t depth0);
  Flow Set(const Stmt* stmt, EnvObject& env);
  Flow SetBlock(const Stmt* stmt, EnvObject& env);
  Flow DefineMacro(const Stmt* stmt, EnvObject& env);
  Flow CallStatement(const Stmt* stmt, EnvObject& env);
  Flow FilterBlock(const Stmt* stmt, EnvObject& env);
  Flow With(const Stmt* stmt, EnvObject& env);
  Flow Autoescape(const Stmt* stmt, EnvObject& env);
  Flow Block(const Stmt* stmt, EnvObject& env);
  Flow NoLoader(const Stmt* stmt, EnvObject& env);
  bool BindMacroArguments(const MacroObject& macro, Arguments& arguments, EnvObject& env);
  bool RunBlock(const BlockInfo& block, const Value& context);
  // False (and failed) when `target` is an attribute of what is no namespace.
  bool CheckTarget(const Expr* target, EnvObject& env);
  bool Assign(const Expr* target, Value value, EnvObject& env);
  void Export(const Stmt* stmt, EnvObject& env);
  void Enter(const Scope& scope, EnvObject& env);
  void Leave(const Scope& scope, EnvObject& env);
  Value Resolve(const EnvObject& env, const std::string& name) const;
  Value NewEnv(int slots, const Value& parent, const Value& context);
  bool Write(std::string_view text);
  bool Escapes(EscapeMode mode) const {
    return mode == EscapeMode::kOn || (mode == EscapeMode::kWhenPrinting && runtime_.autoescape);
  }
  bool WriteValue(const Value& value, EscapeMode mode);
  // What a filter or call block gives. Jinja2 does not turn it into text: anything else is an error, which shows only
  // when the text around it is joined.
  bool WriteResult(const Value& value);
  void CheckAllText();

  // --- Expressions (evaluate.cc) ---
  Value Evaluate(const Expr* expr, EnvObject& env);
  Value EvaluateItems(const Expr* expr, EnvObject& env);
  Value EvaluateDict(const Expr* expr, EnvObject& env);
  Value EvaluateCompare(const Expr* expr, EnvObject& env);
  Value EvaluateConcat(const Expr* expr, EnvObject& env);
  Value EvaluateCondition(const Expr* expr, EnvObject& env);
  Value EvaluateGetItem(const Expr* expr, EnvObject& env);
  Value EvaluateCall(const Expr* expr, EnvObject& env, const Value& caller);
  Value EvaluateFilter(const Expr* expr, EnvObject& env, const Value* captured);
  Value EvaluateTest(const Expr* expr, EnvObject& env);
  Value Load(const Expr* expr, EnvObject& env);
  bool EvaluateArguments(const CallArguments& call, EnvObject& env, Arguments* arguments);
  static Value& Slot(const VariableRef& variable, EnvObject& env);

  // Collects what is written while it lives.
  class Capture;

  Runtime& runtime_;
  const Template& tree_;
  Value context_;
  std::string* output_ = nullptr;
  std::string not_text_;  // type of the first such result in the text being written
};

}  // namespace nunspark::text::jinja

#endif  // NUNSPARK_TEXT_CHAT_INTERPRETER_H_
