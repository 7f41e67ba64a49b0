#include "text/chat/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace nunspark::text::jinja {

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(interpreter.output_), outer_not_text_(interpreter.not_text_) {
    interpreter.output_ = &text_;
    interpreter.not_text_.clear();
  }
  ~Capture() { Restore(); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  // Ends the capture. Markup where autoescaping is on, by default at this moment.
  Value Take() { return Take(interpreter_.runtime_.autoescape); }
  Value Take(bool markup) {
    Runtime& runtime = interpreter_.runtime_;
    interpreter_.CheckAllText();
    Restore();
    return runtime.failed() ? Value::Failed() : runtime.String(std::move(text_), markup);
  }

 private:
  void Restore() {
    interpreter_.output_ = outer_;
    interpreter_.not_text_ = outer_not_text_;
  }

  Interpreter& interpreter_;
  std::string* outer_;
  const std::string outer_not_text_;
  std::string text_;
};

namespace {

// `for x in items if test`: a generator that runs the test as it is asked.
class FilteredItems : public IteratorObject {
 public:
  FilteredItems(Interpreter& interpreter, const Stmt* stmt, Value items, Value env)
      : IteratorObject("generator"),
        interpreter_(interpreter),
        stmt_(stmt),
        items_(std::move(items)),
        env_(std::move(env)) {}
  void Clear() override {
    items_ = env_ = Value();
    cursor_ = Cursor();
  }

 private:
  bool Advance(Runtime& runtime, Value* item) override {
    if (!started_ && !cursor_.Start(runtime, items_)) return false;
    started_ = true;
    return interpreter_.NextFiltered(stmt_, env_.as<EnvObject>(), cursor_, item);
  }

  Interpreter& interpreter_;
  const Stmt* stmt_;
  Value items_;
  Value env_;
  Cursor cursor_;
  bool started_ = false;
};

}  // namespace

Interpreter::Interpreter(Runtime& runtime, const Template& tree, const Value& context)
    : runtime_(runtime), tree_(tree) {
  runtime.interpreter = this;
  auto* variables = new ContextObject();
  for (const DictObject::Entry& entry : context.as<DictObject>().entries) {
    if (entry.key.is_string()) variables->variables.emplace(Text(entry.key), entry.value);
  }
  auto* assigned = new ContextObject();
  assigned->outer = runtime.Adopt(variables);
  context_ = runtime.Adopt(assigned);
}

bool Interpreter::Render(std::string* output) {
  output_ = output;
  Value env = NewEnv(tree_.slot_count, Value(), context_);
  auto& root = env.as<EnvObject>();
  if (tree_.self_slot >= 0) {
    root.slots[static_cast<size_t>(tree_.self_slot)] = runtime_.Adopt(new SelfObject(context_));
  }
  Enter(tree_.scope, root);
  ExecuteAll(tree_.body, root);
  CheckAllText();
  return !runtime_.failed();
}

// --- Variables ---

Value Interpreter::NewEnv(int slots, const Value& parent, const Value& context) {
  auto* env = new EnvObject();
  env->slots.assign(static_cast<size_t>(slots), Value::Missing());
  env->parent = parent;
  env->context = context;
  return runtime_.Adopt(env, slots * static_cast<int64_t>(sizeof(Value)));
}

Value Interpreter::Resolve(const EnvObject& env, const std::string& name) const {
  for (Value context = env.context; !context.is_none(); context = Value(context.as<ContextObject>().outer)) {
    const auto& variables = context.as<ContextObject>().variables;
    if (auto it = variables.find(name); it != variables.end()) return it->second;
  }
  if (const Builtin* global = FindGlobal(name)) return runtime_.Function(*global);
  return Value::Missing();
}

void Interpreter::Enter(const Scope& scope, EnvObject& env) {
  for (const ::nunspark::text::jinja::Load& load : scope.loads) {
    Value& slot = env.slots[static_cast<size_t>(load.slot)];
    switch (load.action) {
      case Load::Action::kResolve: slot = Resolve(env, load.name); break;
      case Load::Action::kAlias: slot = Value(Slot(load.source, env)); break;
      case Load::Action::kUndefined: slot = Value::Missing(); break;
    }
  }
}

void Interpreter::Leave(const Scope& scope, EnvObject& env) {
  for (int slot : scope.slots) env.slots[static_cast<size_t>(slot)] = Value::Missing();
}

Value& Interpreter::Slot(const VariableRef& variable, EnvObject& env) {
  EnvObject* owner = &env;
  for (int i = 0; i < variable.hops; ++i) owner = &owner->parent.as<EnvObject>();
  return owner->slots[static_cast<size_t>(variable.slot)];
}

bool Interpreter::Assign(const Expr* target, Value value, EnvObject& env) {
  if (target->kind == ExprKind::kName) {
    Slot(target->variable, env) = std::move(value);
    return true;
  }
  if (target->kind == ExprKind::kNamespaceRef) {
    if (!CheckTarget(target, env)) return false;
    const Value& holder = Slot(target->variable, env);
    auto& attributes = holder.as<NamespaceObject>().attributes.as<DictObject>();
    const size_t before = attributes.entries.size();
    if (!runtime_.SetText(attributes, target->attribute, std::move(value))) return false;
    if (attributes.entries.size() != before) runtime_.heap().Grow(&attributes, sizeof(DictObject::Entry) * 2);
    return true;
  }
  // Unpacks exactly as many as there are targets; a longer iterable is asked for one item more.
  Cursor cursor;
  if (!runtime_.IsIterable(value)) {
    runtime_.TypeError(fmt::format("cannot unpack non-iterable {} object", TypeName(value)));
    return false;
  }
  if (!cursor.Start(runtime_, value)) return false;
  Values items;
  Value item;
  while (items.size() <= target->items.size() && cursor.Next(runtime_, &item)) items.push_back(item);
  if (runtime_.failed()) return false;
  const size_t wanted = target->items.size();
  if (items.size() > wanted) {
    runtime_.ValueError(fmt::format("too many values to unpack (expected {})", wanted));
    return false;
  }
  if (items.size() < wanted) {
    runtime_.ValueError(fmt::format("not enough values to unpack (expected {}, got {})", wanted, items.size()));
    return false;
  }
  for (size_t i = 0; i < wanted; ++i) {
    if (!Assign(target->items[i], items[i], env)) return false;
  }
  return true;
}

void Interpreter::Export(const Stmt* stmt, EnvObject& env) {
  for (const auto& [name, variable] : stmt->exports) {
    env.context.as<ContextObject>().variables.insert_or_assign(name, Slot(variable, env));
  }
}

// --- Output ---

bool Interpreter::Write(std::string_view text) {
  if (!runtime_.StepBytes(text.size()) || !runtime_.CheckBytes(static_cast<int64_t>(output_->size() + text.size()))) {
    return false;
  }
  output_->append(text);
  return true;
}

bool Interpreter::WriteResult(const Value& value) {
  if (value.is_string()) return Write(Text(value));
  if (not_text_.empty()) not_text_ = TypeName(value);
  return true;
}

void Interpreter::CheckAllText() {
  if (not_text_.empty()) return;
  runtime_.TypeError(fmt::format("sequence item: expected str instance, {} found", not_text_));
}

bool Interpreter::WriteValue(const Value& value, EscapeMode mode) {
  const bool escapes = Escapes(mode);
  if (value.is_string() && (!escapes || value.as<StringObject>().markup)) return Write(Text(value));
  if (escapes) {
    const Value escaped = Escape(runtime_, value);
    return !escaped.failed() && Write(Text(escaped));
  }
  return runtime_.AppendStr(value, *output_) && runtime_.CheckBytes(static_cast<int64_t>(output_->size()));
}

// --- Statements ---

Interpreter::Flow Interpreter::ExecuteAll(const std::vector<Stmt*>& body, EnvObject& env) {
  for (const Stmt* stmt : body) {
    const Flow flow = Execute(stmt, env);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Stmt* stmt, EnvObject& env) {
  if (!runtime_.Step()) return Flow::kFailed;
  DepthGuard depth(runtime_);
  if (!depth.ok) return Flow::kFailed;
  switch (stmt->kind) {
    case StmtKind::kOutput: return Output(stmt, env);
    case StmtKind::kFor: return For(stmt, env);
    case StmtKind::kIf: return If(stmt, env);
    case StmtKind::kSet: return Set(stmt, env);
    case StmtKind::kSetBlock: return SetBlock(stmt, env);
    case StmtKind::kMacro: return DefineMacro(stmt, env);
    case StmtKind::kCallBlock: return CallStatement(stmt, env);
    case StmtKind::kFilterBlock: return FilterBlock(stmt, env);
    case StmtKind::kWith: return With(stmt, env);
    case StmtKind::kAutoescape: return Autoescape(stmt, env);
    case StmtKind::kBlock: return Block(stmt, env);
    case StmtKind::kImport:
    case StmtKind::kExtends: return NoLoader(stmt, env);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kFailed;
}

Interpreter::Flow Interpreter::Output(const Stmt* stmt, EnvObject& env) {
  for (const Expr* expr : stmt->exprs) {
    if (expr->kind == ExprKind::kText) {
      if (!Write(expr->text)) return Flow::kFailed;
      continue;
    }
    const Value value = Evaluate(expr, env);
    if (value.failed() || !WriteValue(value, expr->escape)) return Flow::kFailed;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::If(const Stmt* stmt, EnvObject& env) {
  const Value test = Evaluate(stmt->test, env);
  if (test.failed()) return Flow::kFailed;
  if (runtime_.Truthy(test)) return ExecuteAll(stmt->body, env);
  for (const Stmt* branch : stmt->elifs) {
    const Value next = Evaluate(branch->test, env);
    if (next.failed()) return Flow::kFailed;
    if (runtime_.Truthy(next)) return ExecuteAll(branch->body, env);
  }
  return ExecuteAll(stmt->else_body, env);
}

Interpreter::Flow Interpreter::For(const Stmt* stmt, EnvObject& env) {
  const Value iterable = Evaluate(stmt->value, env);
  if (iterable.failed()) return Flow::kFailed;
  if (!stmt->recursive) return RunLoop(stmt, iterable, env, env, 0);
  const Value text = RunLoopFunction(stmt, iterable, env, 0);
  return !text.failed() && Write(Text(text)) ? Flow::kNext : Flow::kFailed;
}

Value Interpreter::RunLoopFunction(const Stmt* stmt, const Value& iterable, EnvObject& around, int64_t depth0) {
  DepthGuard depth(runtime_, 8);
  if (!depth.ok) return Value::Failed();
  const Value env = NewEnv(stmt->function_slots, Value(static_cast<Object*>(&around)), around.context);
  Capture capture(*this);
  RunLoop(stmt, iterable, env.as<EnvObject>(), around, depth0);
  return capture.Take(Escapes(stmt->escape));
}

Value Interpreter::CallLoop(const LoopObject& loop, const Value& iterable) {
  if (loop.recursive == nullptr) {
    return runtime_.TypeError("The loop must have the 'recursive' marker to be called recursively.");
  }
  return RunLoopFunction(loop.recursive, iterable, loop.env.as<EnvObject>(), loop.depth0 + 1);
}

Interpreter::Flow Interpreter::RunLoop(const Stmt* stmt, const Value& iterable, EnvObject& env, EnvObject& around,
                                       int64_t depth0) {
  Value items = iterable;
  if (stmt->test != nullptr) {
    const Value filter_env = NewEnv(stmt->filter_slot_count, Value(static_cast<Object*>(&around)), env.context);
    items = runtime_.Adopt(new FilteredItems(*this, stmt, iterable, filter_env));
  }
  auto* loop = new LoopObject();
  const Value loop_value = runtime_.Adopt(loop);
  loop->depth0 = depth0;
  if (stmt->recursive) {
    loop->recursive = stmt;
    loop->env = Value(static_cast<Object*>(&around));
  }
  if (!loop->Start(runtime_, items)) return Flow::kFailed;

  // As in Jinja2, a first round that ends in break or continue does not count as a round for `else`.
  bool completed_a_round = false;
  Value item;
  while (loop->Next(runtime_, &item)) {
    if (!runtime_.Step() || !Assign(stmt->target, std::move(item), env)) return Flow::kFailed;
    if (stmt->has_loop_object) env.slots[static_cast<size_t>(stmt->loop_slot)] = loop_value;
    Enter(stmt->scope, env);
    const Flow flow = ExecuteAll(stmt->body, env);
    if (flow == Flow::kFailed) return flow;
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) completed_a_round = true;
  }
  if (runtime_.failed()) return Flow::kFailed;
  Leave(stmt->scope, env);
  if (completed_a_round || stmt->else_body.empty()) return Flow::kNext;
  Enter(stmt->else_scope, env);
  const Flow flow = ExecuteAll(stmt->else_body, env);
  Leave(stmt->else_scope, env);
  return flow;
}

bool Interpreter::NextFiltered(const Stmt* stmt, EnvObject& env, Cursor& cursor, Value* item) {
  Enter(stmt->filter_scope, env);
  while (runtime_.Step() && cursor.Next(runtime_, item)) {
    if (!Assign(stmt->filter_target, *item, env)) return false;
    const Value accepted = Evaluate(stmt->test, env);
    if (accepted.failed()) return false;
    if (runtime_.Truthy(accepted)) return true;
  }
  return false;
}

bool Interpreter::CheckTarget(const Expr* target, EnvObject& env) {
  if (target->kind != ExprKind::kNamespaceRef || Slot(target->variable, env).kind() == Kind::kNamespace) return true;
  runtime_.Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  return false;
}

Interpreter::Flow Interpreter::Set(const Stmt* stmt, EnvObject& env) {
  // As in Jinja2: before the value is looked at.
  if (!CheckTarget(stmt->target, env)) return Flow::kFailed;
  Value value = Evaluate(stmt->value, env);
  if (value.failed() || !Assign(stmt->target, std::move(value), env)) return Flow::kFailed;
  Export(stmt, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::SetBlock(const Stmt* stmt, EnvObject& env) {
  Enter(stmt->scope, env);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = ExecuteAll(stmt->body, env);
    if (flow != Flow::kNext) return flow;
    // As in Jinja2's code, before the parts of the body are joined.
    if (!CheckTarget(stmt->target, env)) return Flow::kFailed;
    text = stmt->filter != nullptr ? capture.Take(Escapes(stmt->escape)) : capture.Take();
  }
  if (!text.failed() && stmt->filter != nullptr) {
    text = EvaluateFilter(stmt->filter, env, &text);
    if (!text.failed() && runtime_.autoescape && !(text.is_string() && text.as<StringObject>().markup)) {
      const Value plain = runtime_.ToString(text);
      text = plain.failed() ? Value::Failed() : runtime_.String(std::string(Text(plain)), true);
    }
  }
  if (text.failed() || !Assign(stmt->target, std::move(text), env)) return Flow::kFailed;
  Export(stmt, env);
  Leave(stmt->scope, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::DefineMacro(const Stmt* stmt, EnvObject& env) {
  Slot(stmt->variable, env) = runtime_.Adopt(new MacroObject(stmt, Value(static_cast<Object*>(&env))));
  Export(stmt, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::CallStatement(const Stmt* stmt, EnvObject& env) {
  const Value caller = runtime_.Adopt(new MacroObject(stmt, Value(static_cast<Object*>(&env))));
  Value result;
  if (stmt->value == nullptr) {  // a generation block
    Arguments none;
    result = CallMacro(caller.as<MacroObject>(), none);
  } else {
    result = EvaluateCall(stmt->value, env, caller);
  }
  return !result.failed() && WriteResult(result) ? Flow::kNext : Flow::kFailed;
}

Interpreter::Flow Interpreter::FilterBlock(const Stmt* stmt, EnvObject& env) {
  Enter(stmt->scope, env);
  Value text;
  {
    Capture capture(*this);
    const Flow flow = ExecuteAll(stmt->body, env);
    if (flow != Flow::kNext) return flow;
    text = capture.Take(Escapes(stmt->escape));
  }
  if (text.failed()) return Flow::kFailed;
  const Value filtered = EvaluateFilter(stmt->filter, env, &text);
  if (filtered.failed() || !WriteResult(filtered)) return Flow::kFailed;
  Leave(stmt->scope, env);
  return Flow::kNext;
}

Interpreter::Flow Interpreter::With(const Stmt* stmt, EnvObject& env) {
  Enter(stmt->scope, env);
  for (size_t i = 0; i < stmt->targets.size(); ++i) {
    Value value = Evaluate(stmt->exprs[i], env);
    if (value.failed() || !Assign(stmt->targets[i], std::move(value), env)) return Flow::kFailed;
  }
  const Flow flow = ExecuteAll(stmt->body, env);
  if (flow != Flow::kFailed) Leave(stmt->scope, env);
  return flow;
}

Interpreter::Flow Interpreter::Autoescape(const Stmt* stmt, EnvObject& env) {
  Enter(stmt->scope, env);
  const Value on = Evaluate(stmt->value, env);
  if (on.failed()) return Flow::kFailed;
  const bool before = runtime_.autoescape;
  runtime_.autoescape = runtime_.Truthy(on);
  const Flow flow = ExecuteAll(stmt->body, env);
  runtime_.autoescape = before;
  if (flow != Flow::kFailed) Leave(stmt->scope, env);
  return flow;
}

Interpreter::Flow Interpreter::Block(const Stmt* stmt, EnvObject& env) {
  if (stmt->required) {
    runtime_.Fail("TemplateRuntimeError", fmt::format("Required block '{}' not found", stmt->text));
    return Flow::kFailed;
  }
  Value context = env.context;
  if (stmt->scoped) {
    auto* derived = new ContextObject();
    derived->outer = context;
    for (const auto& [name, variable] : stmt->locals) {
      const Value& value = Slot(variable, env);
      if (!value.missing()) derived->variables.insert_or_assign(name, value);
    }
    // The block's own assignments go on top of what it was given.
    auto* assigned = new ContextObject();
    assigned->outer = runtime_.Adopt(derived);
    context = runtime_.Adopt(assigned);
  }
  return RunBlock(tree_.blocks.at(stmt->text), context) ? Flow::kNext : Flow::kFailed;
}

bool Interpreter::RunBlock(const BlockInfo& block, const Value& context) {
  DepthGuard depth(runtime_, 8);
  if (!depth.ok) return false;
  const Value env = NewEnv(block.slot_count, Value(), context);
  auto& variables = env.as<EnvObject>();
  if (block.self_slot >= 0) {
    variables.slots[static_cast<size_t>(block.self_slot)] = runtime_.Adopt(new SelfObject(context));
  }
  if (block.super_slot >= 0) {
    variables.slots[static_cast<size_t>(block.super_slot)] =
        runtime_.UndefinedHint(fmt::format("there is no parent block called '{}'.", block.stmt->text));
  }
  Enter(block.scope, variables);
  return ExecuteAll(block.stmt->body, variables) == Flow::kNext;
}

const BlockInfo* Interpreter::FindBlock(std::string_view name) const {
  auto it = tree_.blocks.find(std::string(name));
  return it == tree_.blocks.end() ? nullptr : &it->second;
}

Value Interpreter::CallBlock(const BlockObject& block) {
  Capture capture(*this);
  RunBlock(*block.block, block.context);
  return capture.Take();
}

Interpreter::Flow Interpreter::NoLoader(const Stmt* stmt, EnvObject& env) {
  if (!Evaluate(stmt->value, env).failed()) runtime_.TypeError("no loader for this environment specified");
  return Flow::kFailed;
}

// --- Macros ---

Value Interpreter::CallMacro(const MacroObject& macro, Arguments& arguments) {
  DepthGuard depth(runtime_, 8);
  if (!depth.ok || !runtime_.Step(Runtime::kObjectSteps)) return Value::Failed();
  const MacroInfo& info = macro.info();
  const Value env = NewEnv(info.slot_count, macro.env, macro.env.as<EnvObject>().context);
  auto& variables = env.as<EnvObject>();
  if (!BindMacroArguments(macro, arguments, variables)) return Value::Failed();
  Capture capture(*this);
  Enter(info.scope, variables);
  for (size_t i = 0; i < info.parameter_slots.size(); ++i) {
    const auto slot = static_cast<size_t>(info.parameter_slots[i]);
    if (!variables.slots[slot].missing()) continue;
    const size_t required = info.parameter_slots.size() - info.defaults.size();
    variables.slots[slot] =
        i >= required ? Evaluate(info.defaults[i - required], variables)
                      : runtime_.UndefinedHint(fmt::format("parameter '{}' was not provided", info.parameter_names[i]));
    if (variables.slots[slot].failed()) return Value::Failed();
  }
  ExecuteAll(macro.stmt->body, variables);
  return capture.Take();
}

bool Interpreter::BindMacroArguments(const MacroObject& macro, Arguments& arguments, EnvObject& env) {
  const MacroInfo& info = macro.info();
  auto slot = [&env](int i) -> Value& { return env.slots[static_cast<size_t>(i)]; };
  auto take_keyword = [&](std::string_view name) {
    auto& keywords = arguments.keywords;
    if (!runtime_.Step(static_cast<int64_t>(keywords.size() / 8))) return Value::Missing();
    auto it = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
    if (it == keywords.end()) return Value::Missing();
    Value value = std::move(it->second);
    keywords.erase(it);
    return value;
  };
  const size_t count = info.parameter_slots.size();
  const size_t given = std::min(count, arguments.positional.size());
  bool found_caller = given == count && info.explicit_caller;
  for (size_t i = 0; i < count; ++i) {
    if (i < given) {
      slot(info.parameter_slots[i]) = arguments.positional[i];
      continue;
    }
    slot(info.parameter_slots[i]) = take_keyword(info.parameter_names[i]);
    if (info.parameter_names[i] == "caller") found_caller = true;
  }
  if (info.caller_slot >= 0 && !found_caller) {
    Value caller = take_keyword("caller");
    const bool absent = caller.missing() || caller.is_none();
    slot(info.caller_slot) = absent ? runtime_.UndefinedHint("No caller defined") : std::move(caller);
  }
  const std::string name = info.anonymous ? "None" : "'" + info.name + "'";
  if (info.kwargs_slot >= 0) {
    auto* kwargs = new DictObject();
    for (auto& [key, value] : arguments.keywords) runtime_.SetText(*kwargs, key, std::move(value));
    slot(info.kwargs_slot) = runtime_.Seal(kwargs);
  } else if (!arguments.keywords.empty()) {
    for (const auto& [key, value] : arguments.keywords) {
      if (key != "caller") continue;
      runtime_.TypeError(
          fmt::format("macro {} was invoked with two values for the special caller argument. This is most "
                      "likely a bug.",
                      name));
      return false;
    }
    runtime_.TypeError(
        fmt::format("macro {} takes no keyword argument {}", name, StringRepr(arguments.keywords.front().first)));
    return false;
  }
  if (info.varargs_slot >= 0) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    slot(info.varargs_slot) = runtime_.Tuple(Values(rest, arguments.positional.end()));
  } else if (arguments.positional.size() > count) {
    runtime_.TypeError(fmt::format("macro {} takes not more than {} argument(s)", name, count));
    return false;
  }
  return !runtime_.failed();
}

// --- The loop variable ---

void LoopObject::Clear() {
  env = iterable_ = after_ = current_ = before_ = last_changed_ = Value();
  cursor_ = Cursor();
}

bool LoopObject::Start(Runtime& runtime, const Value& iterable) {
  iterable_ = iterable;
  return cursor_.Start(runtime, iterable);
}

bool LoopObject::Next(Runtime& runtime, Value* item) {
  const Value self(this);  // a generator's code may drop the last other reference
  Value next = Value::Missing();
  if (!after_.missing()) {
    next = std::move(after_);
    after_ = Value::Missing();
  } else if (!cursor_.Next(runtime, &next)) {
    return false;
  }
  ++index0_;
  before_ = std::move(current_);
  current_ = next;
  *item = std::move(next);
  return true;
}

bool LoopObject::Peek(Runtime& runtime) {
  const Value self(this);
  if (!after_.missing()) return true;
  Value next;
  if (!cursor_.Next(runtime, &next)) return false;
  after_ = std::move(next);
  return true;
}

int64_t LoopObject::Length(Runtime& runtime) {
  const Value self(this);
  if (length_ >= 0) return length_;
  if (runtime.HasLength(iterable_)) return length_ = runtime.Length(iterable_);
  // A generator: read the rest now.
  Values rest;
  Value item;
  while (cursor_.Next(runtime, &item)) {
    rest.push_back(std::move(item));
    if (!runtime.Step() || !runtime.CheckItems(static_cast<int64_t>(rest.size()))) return -1;
  }
  if (runtime.failed()) return -1;
  length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (after_.missing() ? 0 : 1);
  const Value list = runtime.List(std::move(rest));
  if (list.failed() || !cursor_.Start(runtime, list)) return -1;
  return length_;
}

Value LoopObject::Attribute(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value::Int(index0_ + 1);
  if (name == "index0") return Value::Int(index0_);
  if (name == "first") return Value::Bool(index0_ == 0);
  if (name == "depth") return Value::Int(depth0 + 1);
  if (name == "depth0") return Value::Int(depth0);
  if (name == "length" || name == "revindex" || name == "revindex0") {
    const int64_t length = Length(runtime);
    if (length < 0) return Value::Failed();
    return Value::Int(name == "length" ? length : name == "revindex" ? length - index0_ : length - index0_ - 1);
  }
  if (name == "last" || name == "nextitem") {
    const bool more = Peek(runtime);
    if (runtime.failed()) return Value::Failed();
    if (name == "last") return Value::Bool(!more);
    return more ? after_ : runtime.UndefinedHint("there is no next item");
  }
  if (name == "previtem") return index0_ == 0 ? runtime.UndefinedHint("there is no previous item") : before_;
  return Value::Missing();
}

Value LoopObject::Cycle(Runtime& runtime, const Values& items) const {
  if (items.empty()) return runtime.TypeError("no items for cycling given");
  return items[static_cast<size_t>(index0_) % items.size()];
}

Value LoopObject::Changed(Runtime& runtime, const Values& values) {
  JINJA_TRY(Value now, runtime.Tuple(values));
  const bool same = !last_changed_.missing() && runtime.Equal(last_changed_, now);
  if (runtime.failed()) return Value::Failed();
  if (!same) last_changed_ = std::move(now);
  return Value::Bool(!same);
}

}  // namespace nunspark::text::jinja
